#include "transport/collective/mapped/ring.h"

#include <algorithm>

namespace longhaul::collective::mapped {
namespace {

// Smaller ones cost more flags than they gain.
constexpr uint64_t kLeastChunkBytes = uint64_t{8} << 10;
constexpr uint32_t kLeastLanes = 2;
// Until here half of the lanes.
constexpr uint64_t kLargeBytes = uint64_t{16} << 20;
// Chunks of each lane: one is emptied while the next is filled.
constexpr uint64_t kChunksOfLane = 2;

}  // namespace

Cut CutOf(uint64_t most_bytes, uint32_t ranks) {
  if (most_bytes == 0) return {};
  const uint32_t others = std::max(ranks, 2U) - 1;
  const uint64_t lanes =
      std::max((most_bytes > kLargeBytes ? kLanes : kLanes / 2) / others, kLeastLanes);
  const uint64_t even = most_bytes / (lanes * kChunksOfLane) + 1;
  const uint64_t whole = (even + kLeastChunkBytes - 1) / kLeastChunkBytes * kLeastChunkBytes;
  const uint64_t chunk = std::min(whole, kSlotBytes);
  const uint64_t chunks = (most_bytes + chunk - 1) / chunk;
  return {static_cast<uint32_t>(std::min(chunks, lanes)), chunk};
}

}  // namespace longhaul::collective::mapped
