#include "proto/wire/link_header.h"

#include <fmt/core.h>
#include <xxh_x86dispatch.h>  // of XXH3, the code that is fastest on this processor

#include <algorithm>
#include <memory>

#include "proto/wire/little_endian.h"

namespace longhaul::wire {
namespace {

constexpr uint32_t kLinkMagic = 0x4B4C484C;  // "LHLK"
constexpr size_t kCreditsAt = 24, kFollowingAt = 27, kPayloadBytesAt = 28, kChecksumAt = 32;
constexpr uint8_t kLanes = 2;

uint64_t ChecksumOf(std::span<const std::byte> header, std::span<const std::byte> head,
                    std::span<const std::byte> tail) {
  // 576 bytes of state; one a thread, so that no frame allocates.
  thread_local const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(
      XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const auto piece : {header, head, tail}) {
    if (!piece.empty()) XXH3_64bits_update(state.get(), piece.data(), piece.size());
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace

void EncodeLinkHeader(const LinkHeader& header, std::span<const std::byte> payload_head,
                      std::span<const std::byte> payload_tail,
                      std::span<std::byte, kLinkHeaderBytes> out, LinkGuard guard) {
  std::ranges::fill(out, std::byte{0});
  PutLe<uint32_t>(out, 0, kLinkMagic);
  PutLe<uint16_t>(out, 4, header.version);
  PutLe<uint8_t>(out, 6, static_cast<uint8_t>(header.kind));
  PutLe<uint8_t>(out, 7, header.lane);
  PutLe<uint64_t>(out, 8, header.sequence);
  PutLe<uint64_t>(out, 16, header.acknowledgement);
  PutLe<uint32_t>(out, kCreditsAt, header.credits);
  if (header.version >= kLinkVersionOfFollowing)
    PutLe<uint8_t>(out, kFollowingAt, header.following);
  PutLe<uint32_t>(out, kPayloadBytesAt,
                  static_cast<uint32_t>(payload_head.size() + payload_tail.size()));
  PutLe<uint64_t>(out, 40, header.link_id);
  if (guard == LinkGuard::kSeal) return;
  PutLe<uint64_t>(out, kChecksumAt, ChecksumOf(out, payload_head, payload_tail));
}

size_t BytesFollowing(std::span<const std::byte> header) {
  if (GetLe<uint16_t>(header, 4) < kLinkVersionOfFollowing) return 0;
  return size_t{GetLe<uint8_t>(header, kFollowingAt)} *
         (kLinkHeaderBytes + GetLe<uint32_t>(header, kPayloadBytesAt));
}

namespace {

Status CheckSum(std::span<const std::byte> header, std::span<const std::byte> payload) {
  std::array<std::byte, kLinkHeaderBytes> blank;
  std::ranges::copy(header, blank.begin());
  PutLe<uint64_t>(blank, kChecksumAt, 0);
  std::ranges::fill(std::span(blank).subspan(kLinkTagAt), std::byte{0});
  const auto stated = GetLe<uint64_t>(header, kChecksumAt);
  const uint64_t actual = ChecksumOf(blank, payload, {});
  if (stated == actual) return absl::OkStatus();
  return DataLoss("frame of {} bytes arrived damaged: checksum {:016x}, its bytes give {:016x}",
                  payload.size(), stated, actual);
}

}  // namespace

StatusOr<LinkHeader> DecodeLinkHeader(std::span<const std::byte> header,
                                      std::span<const std::byte> payload, LinkGuard guard) {
  if (header.size() != kLinkHeaderBytes) {
    return InvalidArgument("expected a link header of {} bytes, got {} bytes", kLinkHeaderBytes,
                           header.size());
  }
  if (const auto magic = GetLe<uint32_t>(header, 0); magic != kLinkMagic) {
    return InvalidArgument(
        "expected a link header (magic {:08x}), got {:08x}; the other side is not a "
        "longhaul data link",
        kLinkMagic, magic);
  }
  LinkHeader decoded;
  decoded.version = GetLe<uint16_t>(header, 4);
  if (decoded.version < kLinkVersionMin || decoded.version > kLinkVersionMax) {
    return absl::UnimplementedError(
        fmt::format("this program speaks link versions {} to {}, the peer's frame has version {}; "
                    "run the same release on both machines",
                    kLinkVersionMin, kLinkVersionMax, decoded.version));
  }
  // The checksum comes before the other fields: a damaged frame is called damaged, whatever its
  // fields look like.
  if (guard == LinkGuard::kChecksum) LH_RETURN_IF_ERROR(CheckSum(header, payload));
  const auto kind = GetLe<uint8_t>(header, 6);
  if (kind < static_cast<uint8_t>(LinkKind::kHello) ||
      kind > static_cast<uint8_t>(LinkKind::kGoodbye)) {
    return InvalidArgument("expected a frame of kind 1 to 7, got kind {}", kind);
  }
  decoded.kind = static_cast<LinkKind>(kind);
  decoded.lane = GetLe<uint8_t>(header, 7);
  if (decoded.lane >= kLanes) {
    return InvalidArgument("expected lane 0 or 1, got {}", decoded.lane);
  }
  decoded.sequence = GetLe<uint64_t>(header, 8);
  decoded.acknowledgement = GetLe<uint64_t>(header, 16);
  decoded.credits = GetLe<uint32_t>(header, kCreditsAt);
  if (decoded.version >= kLinkVersionOfFollowing) {
    decoded.following = GetLe<uint8_t>(header, kFollowingAt);
    decoded.credits &= 0xFFFFFF;
  }
  decoded.payload_bytes = GetLe<uint32_t>(header, kPayloadBytesAt);
  if (decoded.payload_bytes != payload.size()) {
    return InvalidArgument("frame states a payload of {} bytes, {} came", decoded.payload_bytes,
                           payload.size());
  }
  decoded.link_id = GetLe<uint64_t>(header, 40);
  return decoded;
}

}  // namespace longhaul::wire
