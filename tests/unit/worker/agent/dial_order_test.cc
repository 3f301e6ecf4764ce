// Which coordinator a worker dials next, and when.
#include "worker/agent/dial_order.h"

#include <gtest/gtest.h>

namespace longhaul::worker {
namespace {

constexpr SessionEnding kDown = {};
constexpr SessionEnding kWelcomed = {.welcomed = true};
constexpr SessionEnding kServes = {.serves = true};

TEST(DialOrder, OneCoordinatorIsDialledAgainAfterGrowingPauses) {
  DialOrder order(1);
  absl::Duration before;
  for (int i = 0; i < 10; ++i) {
    const NextDial next = order.After(kDown);
    EXPECT_FALSE(next.another);
    EXPECT_GT(next.pause, absl::ZeroDuration());
    EXPECT_GE(next.pause, before);
    before = next.pause;
  }
  EXPECT_EQ(before, absl::Seconds(5));
  EXPECT_EQ(order.After(kWelcomed).pause, absl::Milliseconds(200));
  EXPECT_EQ(order.SilenceLimit(), absl::InfiniteDuration());
}

TEST(DialOrder, AllAreTriedBeforeAPause) {
  DialOrder order(3);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 2; ++i) {
      const NextDial next = order.After(kDown);
      EXPECT_TRUE(next.another);
      EXPECT_EQ(next.pause, absl::ZeroDuration());
    }
    const NextDial last = order.After(kDown);
    EXPECT_TRUE(last.another);
    EXPECT_GT(last.pause, absl::ZeroDuration());
    EXPECT_LE(last.pause, absl::Seconds(1));
  }
}

TEST(DialOrder, WhoServesIsDialledAgain) {
  DialOrder order(2);
  const NextDial next = order.After(kServes);
  EXPECT_FALSE(next.another);
  EXPECT_GT(next.pause, absl::ZeroDuration());
}

TEST(DialOrder, AWelcomeMakesThePauseShort) {
  DialOrder order(2);
  for (int i = 0; i < 8; ++i) (void)order.After(kDown);
  (void)order.After(kWelcomed);
  EXPECT_EQ(order.After(kDown).pause, absl::Milliseconds(200));
}

TEST(DialOrder, OneOfSeveralMayNotBeSilentForLong) {
  EXPECT_EQ(DialOrder(2).SilenceLimit(), kLeaderSilence);
}

}  // namespace
}  // namespace longhaul::worker
