#include "worker/pipeline/link_credits.h"

#include <gtest/gtest.h>

namespace longhaul::worker {
namespace {

constexpr uint64_t kMessage = uint64_t{128} * transport::kMaxFramePayloadBytes;
constexpr absl::Duration kRoundTrip = absl::Milliseconds(50);

uint32_t For(double bits_per_second) {
  return transport::CreditsFor(bits_per_second, kRoundTrip, kMessage);
}

TEST(LinkCredits, BeginWithThePlansRate) {
  EXPECT_EQ(LinkCredits(100e6, kRoundTrip, kMessage).count(), For(100e6));
  EXPECT_EQ(LinkCredits(0, kRoundTrip, kMessage).count(), transport::kDefaultCredits);
}

TEST(LinkCredits, AreTheUsualOnesForMessagesThatShowNoRate) {
  const uint64_t small = (LinkCredits::kChunksOfARate - 1) * transport::kMaxFramePayloadBytes;
  EXPECT_EQ(LinkCredits(10e6, kRoundTrip, small / 2).count(), transport::kDefaultCredits);
  EXPECT_LT(LinkCredits(10e6, kRoundTrip, small + 1).count(), transport::kDefaultCredits);
}

TEST(LinkCredits, GrowToWhatTheSlowestOfTheLastStepsIsWorth) {
  LinkCredits credits(10e6, kRoundTrip, kMessage);
  EXPECT_FALSE(credits.OnStep(90e6));
  for (size_t step = 2; step < LinkCredits::kSteps; ++step) EXPECT_FALSE(credits.OnStep(200e6));
  EXPECT_TRUE(credits.OnStep(150e6));
  EXPECT_EQ(credits.count(), For(90e6));
  EXPECT_TRUE(credits.OnStep(200e6)) << "the one of 90 Mbit/s is none of the last ones";
  EXPECT_EQ(credits.count(), For(150e6));
}

TEST(LinkCredits, StayWhereAStepIsSlow) {
  LinkCredits credits(100e6, kRoundTrip, kMessage);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(credits.OnStep(i % 7 == 0 ? 99e6 : 900e6));
  EXPECT_EQ(credits.count(), For(100e6));
}

// A line of 1 Gbit/s whose plan was made when it carried 10: what credits let through is what the
// next ones are counted by.
TEST(LinkCredits, EndUpNoLimit) {
  for (const double round_trip_seconds : {0.05, 0.3}) {
    LinkCredits credits(10e6, absl::Seconds(round_trip_seconds), kMessage);
    const double at_most = 8.0 * transport::kMaxFramePayloadBytes / round_trip_seconds;
    const double wanted = std::min(1e9, at_most * transport::kDefaultCredits);
    EXPECT_LT(at_most * credits.count(), wanted);
    for (int step = 0; step < 80; ++step) {
      credits.OnStep(std::min(1e9, at_most * credits.count()));
    }
    EXPECT_GE(at_most * credits.count(), wanted) << round_trip_seconds;
  }
}

}  // namespace
}  // namespace longhaul::worker
