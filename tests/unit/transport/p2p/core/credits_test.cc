#include <gtest/gtest.h>

#include <limits>

#include "transport/p2p/link.h"

namespace longhaul::transport {
namespace {

constexpr uint64_t kLarge = uint64_t{128} * kMaxFramePayloadBytes;

TEST(CreditsFor, HoldsTwoRoundTripsAndATenthOfASecond) {
  // 12.5 MB/s: 1.25 MB, and 2.5 MB more for twice 100 ms.
  EXPECT_EQ(CreditsFor(100e6, absl::ZeroDuration(), kLarge), 20u);
  EXPECT_EQ(CreditsFor(100e6, absl::Milliseconds(100), kLarge), 58u);
}

TEST(CreditsFor, CountsChunksAsTheyAre) {
  EXPECT_EQ(CreditsFor(100e6, absl::ZeroDuration(), 12'500), 100u);
  // Two chunks of half of it each.
  EXPECT_EQ(CreditsFor(100e6, absl::ZeroDuration(), 100'000), 25u);
}

TEST(CreditsFor, HasLimits) {
  EXPECT_EQ(CreditsFor(1e6, absl::ZeroDuration(), kLarge), 8u);
  EXPECT_EQ(CreditsFor(10e9, absl::Milliseconds(1), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(1e9, absl::InfiniteDuration(), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(1e9, absl::Seconds(-5), kLarge), 8u);
}

TEST(CreditsFor, OfWhatIsNotKnownAreTheUsualOnes) {
  EXPECT_EQ(CreditsFor(0, absl::Milliseconds(10), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(-1, absl::Milliseconds(10), kLarge), kDefaultCredits);
  EXPECT_EQ(CreditsFor(std::numeric_limits<double>::quiet_NaN(), absl::Milliseconds(10), kLarge),
            kDefaultCredits);
  EXPECT_EQ(CreditsFor(100e6, absl::ZeroDuration(), 0), 20u);
}

}  // namespace
}  // namespace longhaul::transport
