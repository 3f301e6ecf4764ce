// The layout of a rank's shared memory, and how a message is cut into chunks. Pure.
//
//   page      words of the rank: `ended` (1: the group has ended), `fault` (1 + the rank whose
//             message had an unexpected length; 0: none)
//   channel   one for each other rank, in the order of ranks:
//     lines   filled[lane][slot], emptied[lane], sent[kind of call][lane]: words that only this
//             rank writes
//     slots   [lane][slot], for messages to that rank
//
// A message is cut into chunks, each at most as large as a slot. A lane is a ring of kSlots slots
// with threads of its own. The lanes take a message's chunks in turn.
#pragma once

#include <cstdint>

namespace longhaul::collective::mapped {

// Number of lanes of a message above 16 MiB in a group of two ranks. A smaller message uses at most
// half of the lanes, because it then arrives sooner. More than kLanes would take more of the GPU
// from concurrent work and gain nothing.
inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kSlots = 4;  // per lane
inline constexpr uint64_t kSlotBytes = uint64_t{128} << 10;
// Distance in bytes between two words, so that two writers never share a cache line.
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
  // Channels are in the order of ranks, and a rank has none to itself.
  const uint32_t itself = rank < peer ? 1 : 0;
  return kPageBytes + (peer - itself) * kChannelBytes;
}

struct Cut {
  uint32_t lanes = 0;  // lanes in use
  uint64_t chunk_bytes = 0;
};
// Returns how a message of at most `most_bytes` is cut in a group of `ranks` ranks. Sender and
// receiver compute the same. The messages to all other ranks share kLanes lanes, because they share
// one bus.
Cut CutOf(uint64_t most_bytes, uint32_t ranks);

}  // namespace longhaul::collective::mapped
