#include <gtest/gtest.h>

#include <limits>

#include "transport/p2p/link.h"

namespace longhaul::transport {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(5);
constexpr uint64_t kLarge = uint64_t{128} * kMaxFramePayloadBytes;

TEST(CreditsFor, HoldsTwoRoundTripsAndATenthOfASecond) {
  // 12.5 MB/s: 1.25 MB, and 0.125 or 2.5 MB more.
  EXPECT_EQ(CreditsFor(100e6, kShort, kLarge), 21u);
  EXPECT_EQ(CreditsFor(100e6, absl::Milliseconds(100), kLarge), 58u);
}

TEST(CreditsFor, CountsChunksAsTheyAre) {
  EXPECT_EQ(CreditsFor(100e6, kShort, 12'500), 110u);
  // Two chunks of half of it each.
  EXPECT_EQ(CreditsFor(100e6, kShort, 100'000), 28u);
}

TEST(CreditsFor, HasLimits) {
  EXPECT_EQ(CreditsFor(1e6, kShort, kLarge), 8u);
  EXPECT_EQ(CreditsFor(10e9, absl::Milliseconds(1), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(1e9, absl::InfiniteDuration(), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(1e3, absl::Milliseconds(1), 1), 13u);
}

TEST(CreditsFor, OfWhatIsNotKnownAreTheUsualOnes) {
  EXPECT_EQ(CreditsFor(0, absl::Milliseconds(10), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(-1, absl::Milliseconds(10), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(std::numeric_limits<double>::quiet_NaN(), absl::Milliseconds(10), kLarge),
            kDefaultCredits);
  EXPECT_EQ(CreditsFor(100e6, absl::ZeroDuration(), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(100e6, absl::Seconds(-5), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(100e6, kShort, 0), 21u);
}

}  // namespace
}  // namespace longhaul::transport
