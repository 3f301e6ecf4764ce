#include "transport/collective/core/id.h"

#include <fmt/core.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "base/file.h"
#include "transport/collective/core/message.h"

namespace longhaul::collective::internal {
namespace {

constexpr std::string_view kPrefix = "lhg1-";
constexpr std::string_view kPurpose = "rendezvous";
constexpr size_t kNameBytes = 8;

bool IsHex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string SocketName(std::string_view purpose, std::string_view hex) {
  return fmt::format("longhaul-{}-{}", purpose, hex);
}

}  // namespace

std::string NewSocketName(std::string_view purpose) {
  return SocketName(purpose, absl::BytesToHexString(RandomBytes(kNameBytes)));
}

RendezvousId NewRendezvousId() {
  return {NewSocketName(kPurpose), RandomBytes(kSecretBytes)};
}

std::string FormatId(const RendezvousId& id) {
  const std::string_view socket = id.socket;
  return fmt::format("{}{}-{}", kPrefix, socket.substr(socket.size() - 2 * kNameBytes),
                     absl::BytesToHexString(id.secret));
}

StatusOr<RendezvousId> ParseId(std::string_view text) {
  constexpr size_t kNameAt = kPrefix.size();
  constexpr size_t kSecretAt = kNameAt + 2 * kNameBytes + 1;
  if (text.size() != kSecretAt + 2 * kSecretBytes || !text.starts_with(kPrefix) ||
      text[kSecretAt - 1] != '-' || !IsHex(text.substr(kNameAt, 2 * kNameBytes)) ||
      !IsHex(text.substr(kSecretAt))) {
    return InvalidArgument(
        "a rendezvous's id is {}, {} hexadecimal digits, '-' and {} more; got {} bytes that are "
        "none; take the id as Rendezvous::id() gives it",
        kPrefix, 2 * kNameBytes, 2 * kSecretBytes, text.size());
  }
  return RendezvousId{SocketName(kPurpose, text.substr(kNameAt, 2 * kNameBytes)),
                      absl::HexStringToBytes(std::string(text.substr(kSecretAt)))};
}

}  // namespace longhaul::collective::internal
