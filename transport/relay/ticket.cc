#include "transport/relay/ticket.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <system_error>

#include "absl/strings/escaping.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/wire/little_endian.h"

namespace longhaul::relay {
namespace {

constexpr size_t kUntilAt = 1, kNameAt = 9, kProofAt = kNameAt + kNameBytes;
constexpr size_t kTicketBytes = 8 + kNameBytes + kProofBytes;

std::string Number(uint64_t value) {
  std::array<std::byte, 8> bytes{};
  wire::PutLe<uint64_t>(bytes, 0, value);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t NumberOf(std::string_view bytes) {
  return wire::GetLe<uint64_t>(std::as_bytes(std::span(bytes)), 0);
}

// The key of a ticket follows from what the ticket says, so a relay keeps no list of tickets. The
// words at the beginning keep it apart from other hashes with the same secret.
std::string KeyOf(std::string_view relay_secret, std::string_view name, std::string_view until) {
  return HmacSha256(relay_secret, fmt::format("longhaul relay ticket {}{}", until, name));
}

std::string ProofOf(std::string_view key, std::string_view claim, std::string_view nonce) {
  return HmacSha256(key, fmt::format("longhaul relay answer {}{}", claim, nonce));
}

}  // namespace

std::string ScopeOf(std::string_view link_secret, std::string_view tag) {
  return HmacSha256(link_secret, fmt::format("relays of {}", tag)).substr(0, kScopeBytes);
}

std::string NameOf(std::string_view link_secret, std::string_view tag, std::string_view link) {
  return ScopeOf(link_secret, tag) +
         HmacSha256(link_secret, fmt::format("meeting of {} in {}", link, tag))
             .substr(0, kNameBytes - kScopeBytes);
}

Ticket MakeTicket(std::string_view relay_secret, std::string_view name, uint64_t until_s) {
  return {.name = std::string(name),
          .until_s = until_s,
          .key = KeyOf(relay_secret, name, Number(until_s))};
}

std::string ToString(const Way& way) {
  return fmt::format(
      "{}#{}", way.address,
      absl::BytesToHexString(Number(way.ticket.until_s) + way.ticket.name + way.ticket.key));
}

StatusOr<Way> ParseWay(std::string_view text) {
  const size_t hash = text.find('#');
  const std::string_view hex = hash == std::string_view::npos ? "" : text.substr(hash + 1);
  const bool is_hex = hex.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (hash == std::string_view::npos || hash > 300 || !is_hex || hex.size() != 2 * kTicketBytes) {
    // Without '#' all of the text may be a ticket, which is a secret.
    return InvalidArgument(
        "expected the address of a relay, '#' and a ticket of {} hexadecimal digits, got {}",
        2 * kTicketBytes,
        hash == std::string_view::npos
            ? fmt::format("{} bytes without '#'", text.size())
            : fmt::format("'{}' and {} digits", text.substr(0, std::min<size_t>(hash, 300)),
                          hex.size()));
  }
  const std::string bytes = absl::HexStringToBytes(std::string(hex));
  return Way{.address = std::string(text.substr(0, hash)),
             .ticket = {.name = bytes.substr(8, kNameBytes),
                        .until_s = NumberOf(bytes),
                        .key = bytes.substr(8 + kNameBytes)}};
}

std::string Greeting(std::string_view nonce) {
  return std::string(kMagic) + std::string(nonce);
}

StatusOr<std::string_view> ParseGreeting(std::string_view greeting) {
  if (greeting.size() != kGreetingBytes || !greeting.starts_with(kMagic)) {
    return absl::InvalidArgumentError("what answers there is no relay of this version");
  }
  return greeting.substr(kMagic.size());
}

std::string Answer(const Ticket& ticket, Side side, std::string_view nonce) {
  std::string answer =
      fmt::format("{}{}{}", static_cast<char>(side), Number(ticket.until_s), ticket.name);
  answer += ProofOf(ticket.key, answer, nonce);
  return answer;
}

StatusOr<Claim> CheckAnswer(std::string_view relay_secret, std::string_view answer,
                            std::string_view nonce, uint64_t now_s) {
  if (answer.size() != kAnswerBytes) {
    return PermissionDenied("an answer has {} bytes, this one {}", kAnswerBytes, answer.size());
  }
  const auto side = static_cast<Side>(answer[0]);
  const std::string_view until = answer.substr(kUntilAt, 8),
                         name = answer.substr(kNameAt, kNameBytes);
  const std::string proof =
      ProofOf(KeyOf(relay_secret, name, until), answer.substr(0, kProofAt), nonce);
  if (!ConstantTimeEqual(proof, answer.substr(kProofAt)) ||
      (side != Side::kDialler && side != Side::kWaiter)) {
    return absl::PermissionDeniedError("the ticket is none of this relay's");
  }
  // After the proof: before it anybody may have written the time.
  if (now_s > NumberOf(until)) return absl::PermissionDeniedError("the ticket's time is over");
  return Claim{side, name};
}

StatusOr<std::string> LoadOrMakeSecret(const std::string& path) {
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    LH_RETURN_IF_ERROR(
        WriteFileAtomic(path, absl::BytesToHexString(RandomBytes(kSecretBytes)), 0600));
  }
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, /*limit_bytes=*/4096));
  if (IsSha256Hex(text)) return absl::HexStringToBytes(text);
  return FailedPrecondition(
      "{} is to hold a relay's secret, {} hexadecimal digits; remove it, and the next "
      "start makes a new one",
      path, 2 * kSecretBytes);
}

}  // namespace longhaul::relay
