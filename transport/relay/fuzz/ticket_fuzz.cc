// Any bytes as what strangers send to a relay, and as what a relay or a coordinator sends to a
// worker: a greeting, an answer, a way. A changed ticket must not pass.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "base/fuzz/target.h"
#include "proto/wire/little_endian.h"
#include "transport/relay/ticket.h"

namespace longhaul::relay {
namespace {

const std::string kFuzzSecret(kSecretBytes, 's');
const std::string kFuzzNonce(kNonceBytes, 'n');
constexpr uint64_t kFuzzNow = 1'000;

bool CheckWay(std::string_view text) {
  const auto way = ParseWay(text);
  if (!way.ok()) {
    // Messages reach logs: the ticket must not. A '#' stands before no other digits.
    const size_t hash = text.find('#');
    const std::string_view digits = hash == std::string_view::npos ? "" : text.substr(hash, 41);
    if (digits.size() == 41 &&
        digits.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos &&
        longhaul::Message(way.status()).find(digits) != std::string_view::npos) {
      std::abort();
    }
    return false;
  }
  const auto again = ParseWay(ToString(*way));
  if (!again.ok() || ToString(*again) != ToString(*way)) std::abort();
  return true;
}

bool CheckGreeting(std::string_view bytes) {
  const auto nonce = ParseGreeting(bytes);
  if (!nonce.ok()) return false;
  if (Greeting(*nonce) != bytes) std::abort();
  return true;
}

// Who passes holds a ticket that this relay's secret makes, and one that has not expired.
bool CheckClaim(std::string_view answer) {
  const auto claim = CheckAnswer(kFuzzSecret, answer, kFuzzNonce, kFuzzNow);
  if (!claim.ok()) return false;
  const auto bytes = std::as_bytes(std::span(answer));
  const auto until = wire::GetLe<uint64_t>(bytes, 1);
  const Ticket ticket = MakeTicket(kFuzzSecret, claim->name, until);
  if (until < kFuzzNow || Answer(ticket, claim->side, kFuzzNonce) != answer) std::abort();
  return true;
}

// With a proof that fits, because no input gets beyond the proof by chance.
bool CheckProvedClaim(std::string_view answer) {
  if (answer.size() < kAnswerBytes) return false;
  const auto bytes = std::as_bytes(std::span(answer));
  const Ticket ticket =
      MakeTicket(kFuzzSecret, answer.substr(9, kNameBytes), wire::GetLe<uint64_t>(bytes, 1));
  return CheckClaim(Answer(ticket, static_cast<Side>(answer[0]), kFuzzNonce));
}

}  // namespace
}  // namespace longhaul::relay

LH_FUZZ_TARGET(relay_ticket) {
  using namespace longhaul::relay;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool way = CheckWay(text), greeting = CheckGreeting(text), claim = CheckClaim(text);
  return CheckProvedClaim(text) || way || greeting || claim;
}
