// Parses certificates. Pure. Does not check who signed a certificate: TLS has already checked that
// the authority signed the peer's certificate. If OpenSSL fails, functions return kInternal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/identity/member.h"

namespace longhaul {

// Largest certificate, key or signing request that is parsed. Longhaul's own have less than 1 KiB.
inline constexpr size_t kMaxPemBytes = 16 << 10;

struct MemberCertificate {
  Member member;
  absl::Time not_before, not_after;
  std::string key_sha256;  // hash of the public key, as RequestedKey returns it
};
// Reads the first certificate in `pem`. kInvalidArgument: there is none, or it is not a member's.
StatusOr<MemberCertificate> ReadMemberCertificate(std::string_view pem);
// Returns the SHA-256 of the first certificate in `pem`, in its DER form, as 64 hexadecimal digits.
// kInvalidArgument: there is no certificate.
StatusOr<std::string> Fingerprint(std::string_view pem);
// Returns each certificate in `pem`, alone, in their order; text between them is left out.
// kInvalidArgument: there is none, there are more than 8, or one is damaged.
StatusOr<std::vector<std::string>> CertificatesIn(std::string_view pem);
// Returns the SHA-256 of the public key in a signing request, as 64 hexadecimal digits.
// kInvalidArgument: the request is not signed by this key, or the key is not P-256.
StatusOr<std::string> RequestedKey(std::string_view request_pem);

}  // namespace longhaul
