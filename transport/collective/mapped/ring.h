// The layout of a rank's shared memory, and how a message is cut into chunks. Pure.
//
//   page      words of the rank: `ended`, `fault`
//   channel   one for each other rank, in their order:
//     lines   filled[lane][slot], emptied[lane], sent[kind of call][lane]: words that only this
//             rank writes
//     slots   [lane][slot], for messages to that rank
//
// A message is cut into chunks that fill a slot each. Lanes take chunks in turn.
#pragma once

#include <cstdint>

namespace longhaul::collective::mapped {

// Lanes of a large message to the only other rank. A smaller message uses half of them and arrives
// sooner. More lanes take more of the GPU from concurrent work and gain nothing.
inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kSlots = 4;  // per lane
inline constexpr uint64_t kSlotBytes = uint64_t{128} << 10;
// Distance of two words in bytes: no two writers share a cache line.
inline constexpr uint64_t kLineBytes = 128;
inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint32_t kKinds = 6;  // kinds of calls

// Offsets of the words in a rank's page.
inline constexpr uint64_t kEndedAt = 0, kFaultAt = kLineBytes;

// Offsets in bytes from the beginning of a channel.
inline constexpr uint64_t kFilledAt = 0;
inline constexpr uint64_t kEmptiedAt = kFilledAt + kLanes * kSlots * kLineBytes;
inline constexpr uint64_t kSentAt = kEmptiedAt + kLanes * kLineBytes;
inline constexpr uint64_t kSlotsAt =
    (kSentAt + kKinds * kLanes * kLineBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
inline constexpr uint64_t kChannelBytes = kSlotsAt + kLanes * kSlots * kSlotBytes;

constexpr uint64_t RegionBytes(uint32_t ranks) {
  return kPageBytes + (ranks - 1) * kChannelBytes;
}
// Offset of the channel from `rank` to `peer` in the memory of `rank`.
constexpr uint64_t ChannelAt(uint32_t rank, uint32_t peer) {
  // Channels are in the order of ranks; a rank has none to itself.
  const uint32_t itself = rank < peer ? 1 : 0;
  return kPageBytes + (peer - itself) * kChannelBytes;
}

// How a message of at most `most_bytes` is cut in a group of `ranks`; the same on both sides.
// Messages to all other ranks share the lanes, because they share one bus.
struct Cut {
  uint32_t lanes = 0;  // lanes in use
  uint64_t chunk_bytes = 0;
};
Cut CutOf(uint64_t most_bytes, uint32_t ranks);

}  // namespace longhaul::collective::mapped
