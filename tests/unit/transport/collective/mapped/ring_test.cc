#include "transport/collective/mapped/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace longhaul::collective::mapped {
namespace {

TEST(Ring, AMessageIsCutInWholeVectorsThatFitASlot) {
  for (const uint64_t bytes :
       {uint64_t{1}, uint64_t{16}, uint64_t{8191}, uint64_t{8193}, uint64_t{1} << 18,
        (uint64_t{1} << 24), (uint64_t{1} << 24) + 1, uint64_t{1} << 33}) {
    const Cut cut = CutOf(bytes, 2);
    EXPECT_GE(cut.lanes, 1u) << bytes;
    EXPECT_LE(cut.lanes, kLanes) << bytes;
    EXPECT_LE(cut.chunk_bytes, kSlotBytes) << bytes;
    EXPECT_EQ(cut.chunk_bytes % 16, 0u) << bytes;
    // Every lane that takes part has something to carry.
    EXPECT_LT((cut.lanes - 1) * cut.chunk_bytes, bytes) << bytes;
  }
  EXPECT_EQ(CutOf(0, 2).lanes, 0u);
}

TEST(Ring, ALargeMessageTakesAllLanes) {
  EXPECT_EQ(CutOf(uint64_t{64} << 20, 2).lanes, kLanes);
  EXPECT_LT(CutOf(uint64_t{4} << 20, 2).lanes, kLanes);
}

TEST(Ring, MessagesToSeveralRanksShareTheLanes) {
  constexpr uint64_t kLarge = uint64_t{64} << 20;
  for (const uint32_t ranks : {3U, 8U, 16U}) {
    EXPECT_LE(CutOf(kLarge, ranks).lanes * (ranks - 1), kLanes) << ranks;
    EXPECT_GE(CutOf(kLarge, ranks).lanes, 2u) << ranks;
  }
}

TEST(Ring, ChannelsLieBesideEachOther) {
  constexpr uint32_t kRanks = 5;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    std::map<uint64_t, uint32_t> begins;
    for (uint32_t peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      EXPECT_TRUE(begins.emplace(ChannelAt(rank, peer), peer).second);
    }
    uint64_t end = kPageBytes;
    for (const auto& [begin, peer] : begins) {
      EXPECT_GE(begin, end) << peer;
      end = begin + kChannelBytes;
    }
    EXPECT_EQ(end, RegionBytes(kRanks));
  }
  EXPECT_EQ(kChannelBytes % kPageBytes, 0u);
  EXPECT_GE(kSlotsAt, kSentAt + kKinds * kLanes * kLineBytes);
}

}  // namespace
}  // namespace longhaul::collective::mapped
