// Any bytes as what a stranger may send to a data link: a link header with its payload, and each
// payload of the handshake.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/fuzz/target.h"
#include "base/hash.h"
#include "proto/wire/link_header.h"
#include "proto/wire/little_endian.h"
#include "transport/p2p/core/hello.h"

namespace {

// What was read must be written as the same bytes again, up to the fields that a reader ignores.
template <class Message>
bool RoundTrip(const longhaul::StatusOr<Message>& message,
               std::vector<std::byte> (*encode)(const Message&),
               longhaul::StatusOr<Message> (*decode)(std::span<const std::byte>)) {
  if (!message.ok()) return false;
  const auto bytes = encode(*message);
  const auto again = decode(bytes);
  if (!again.ok() || encode(*again) != bytes) std::abort();
  return true;
}

bool CheckHeader(std::span<const std::byte> header_bytes, std::span<const std::byte> payload) {
  namespace wire = longhaul::wire;
  const auto header = wire::DecodeLinkHeader(header_bytes, payload);
  if (!header.ok()) return false;
  std::array<std::byte, wire::kLinkHeaderBytes> out;
  wire::EncodeLinkHeader(*header, payload, {}, out);
  // The tag is room for later: not written, not read.
  if (!std::equal(out.begin(), out.begin() + 48, header_bytes.begin())) std::abort();
  return true;
}

}  // namespace

LH_FUZZ_TARGET(transport_link) {
  using namespace longhaul::transport::internal;  // NOLINT(google-build-using-namespace)
  namespace wire = longhaul::wire;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header_bytes = bytes.first(std::min(size, wire::kLinkHeaderBytes));
  const auto payload = bytes.subspan(header_bytes.size());
  bool taken = CheckHeader(header_bytes, payload);
  if (header_bytes.size() == wire::kLinkHeaderBytes) {
    // Again with a checksum that fits, else hardly an input gets beyond it.
    std::array<std::byte, wire::kLinkHeaderBytes> repaired;
    std::ranges::copy(header_bytes, repaired.begin());
    std::fill(repaired.begin() + 48, repaired.end(), std::byte{0});
    wire::PutLe<uint64_t>(repaired, 32, 0);
    wire::PutLe<uint64_t>(repaired, 32, longhaul::Checksum64(repaired, payload));
    taken = CheckHeader(repaired, payload) || taken;
  }
  for (const auto candidate : {bytes, payload}) {
    taken = RoundTrip(DecodeHello(candidate), &EncodeHello, &DecodeHello) || taken;
    taken = RoundTrip(DecodeWelcome(candidate), &EncodeWelcome, &DecodeWelcome) || taken;
    taken = RoundTrip(DecodeRefusal(candidate), &EncodeRefusal, &DecodeRefusal) || taken;
  }
  return taken;
}
