// Any bytes as a signing request, a certificate and a credentials file. What is taken as a request
// can be signed, and the certificate says what it was signed for.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/fuzz/target.h"
#include "proto/identity/authority.h"
#include "proto/identity/credentials.h"

LH_FUZZ_TARGET(signing_request) {
  using namespace longhaul;
  static const Authority authority = Authority::Make(absl::FromUnixSeconds(1'800'000'000)).value();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool taken = false;
  if (RequestedKey(text).ok()) {
    taken = true;
    const Member member{.name = "a", .role = Role::kWorker, .worker_id = "1"};
    const auto signed_for =
        authority.Sign(text, member, absl::FromUnixSeconds(1'800'000'000), kDefaultLifetime);
    if (!signed_for.ok() || ReadMemberCertificate(*signed_for)->member != member) std::abort();
  }
  if (const auto read = ReadMemberCertificate(text); read.ok()) {
    taken = true;
    if (!CheckMember(read->member).ok()) std::abort();
  }
  if (const auto credentials = ParseCredentials(text); credentials.ok()) {
    taken = true;
    if (!ParseCredentials(ToPem(*credentials)).ok()) std::abort();
  }
  return taken;
}
