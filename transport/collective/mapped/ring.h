// What a rank's shared memory holds, and how a message is cut. Pure.
//
//   page      words of the rank: `ended`, `fault`
//   channel   one for each other rank, in their order:
//     lines   filled[lane][slot], emptied[lane], sent[kind of call][lane]: words with one writer,
//             this rank
//     slots   [lane][slot], for messages to that rank
//
// A message is cut in chunks, which the lanes take in turns; a chunk fills a slot.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_MAPPED_RING_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_MAPPED_RING_H_

#include <cstdint>

namespace longhaul::collective::mapped {

// Those of a large message to the only other rank; one that is not large is sooner there on half of
// them. More lanes take more of the GPU from whatever runs beside, and gain nothing.
inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kSlots = 4;  // of a lane
inline constexpr uint64_t kSlotBytes = uint64_t{128} << 10;
// From one word to the next, so that no two writers share a line of any cache.
inline constexpr uint64_t kLineBytes = 128;
inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint32_t kKinds = 6;  // of calls

// Offsets of the words in a rank's page.
inline constexpr uint64_t kEndedAt = 0, kFaultAt = kLineBytes;

// In bytes from where a channel begins.
inline constexpr uint64_t kFilledAt = 0;
inline constexpr uint64_t kEmptiedAt = kFilledAt + kLanes * kSlots * kLineBytes;
inline constexpr uint64_t kSentAt = kEmptiedAt + kLanes * kLineBytes;
inline constexpr uint64_t kSlotsAt =
    (kSentAt + kKinds * kLanes * kLineBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
inline constexpr uint64_t kChannelBytes = kSlotsAt + kLanes * kSlots * kSlotBytes;

constexpr uint64_t RegionBytes(uint32_t ranks) {
  return kPageBytes + (ranks - 1) * kChannelBytes;
}
// Where the channel from `rank` to `peer` begins in the memory of `rank`.
constexpr uint64_t ChannelAt(uint32_t rank, uint32_t peer) {
  // Channels in the order of ranks, without one to itself.
  const uint32_t itself = rank < peer ? 1 : 0;
  return kPageBytes + (peer - itself) * kChannelBytes;
}

// How a message of at most so many bytes is cut in a group of `ranks`: alike on both sides. The
// lanes are shared by the messages to all others, for these have one bus.
struct Cut {
  uint32_t lanes = 0;  // that take part
  uint64_t chunk_bytes = 0;
};
Cut CutOf(uint64_t most_bytes, uint32_t ranks);

}  // namespace longhaul::collective::mapped

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_MAPPED_RING_H_
