#include "coordinator/state/books/health_book.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/coordinator/state/books/now.h"

namespace longhaul::coordinator {
namespace {

using Fault = HealthBook::Fault;

const WorkerId kFlapping("flapping"), kOther("other");

class HealthBookTest : public ::testing::Test {
 protected:
  // The next process of it.
  std::optional<HealthBook::Verdict> Lose(const WorkerId& id, absl::Duration at,
                                          Fault fault = Fault::kDied) {
    return book_.Lost(id, Incarnation(std::to_string(++incarnations_)), fault, kNow + at);
  }

  HealthBook book_{HealthOptions()};
  int incarnations_ = 0;
};

TEST_F(HealthBookTest, OneLossIsForgiven) {
  EXPECT_FALSE(Lose(kFlapping, absl::ZeroDuration()));
  EXPECT_FALSE(book_.LeftOutUntil(kFlapping, kNow));
  EXPECT_EQ(book_.Losses(kFlapping, kNow), 1u);
}

TEST_F(HealthBookTest, TheTimeGrowsWithEachLossAndHasAnEnd) {
  Lose(kFlapping, absl::ZeroDuration());
  for (const int seconds : {30, 60, 120, 240, 480, 600, 600}) {
    const absl::Duration at = absl::Seconds(incarnations_);
    const auto verdict = Lose(kFlapping, at);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->pause, absl::Seconds(seconds));
    EXPECT_EQ(verdict->until, kNow + at + absl::Seconds(seconds));
    EXPECT_EQ(verdict->losses, static_cast<uint32_t>(incarnations_));
    EXPECT_EQ(verdict->within, at);
  }
  EXPECT_FALSE(book_.LeftOutUntil(kOther, kNow)) << "another worker has nothing to do with it";
}

TEST_F(HealthBookTest, TheTimeIsOverByItself) {
  Lose(kFlapping, absl::ZeroDuration());
  Lose(kFlapping, absl::Seconds(1));
  EXPECT_EQ(book_.NextWake(kNow + absl::Seconds(2)), kNow + absl::Seconds(31));
  EXPECT_EQ(book_.LeftOutUntil(kFlapping, kNow + absl::Seconds(30)), kNow + absl::Seconds(31));
  EXPECT_FALSE(book_.LeftOutUntil(kFlapping, kNow + absl::Seconds(31)));
  EXPECT_EQ(book_.NextWake(kNow + absl::Seconds(31)), MonoTime::max());
}

TEST_F(HealthBookTest, LossesFarApartDoNotCountTogether) {
  Lose(kFlapping, absl::ZeroDuration());
  EXPECT_FALSE(Lose(kFlapping, absl::Minutes(10)));
  EXPECT_TRUE(Lose(kFlapping, absl::Minutes(19)));
  EXPECT_EQ(book_.Losses(kFlapping, kNow + absl::Minutes(40)), 0u);
}

TEST_F(HealthBookTest, AProcessIsLostOnce) {
  EXPECT_FALSE(book_.Lost(kFlapping, Incarnation("1"), Fault::kDied, kNow));
  EXPECT_FALSE(book_.Lost(kFlapping, Incarnation("1"), Fault::kDied, kNow));
  EXPECT_EQ(book_.Losses(kFlapping, kNow), 1u);
}

TEST_F(HealthBookTest, WhoDidWellBetweenTwoLossesIsNotFlapping) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(Lose(kFlapping, absl::Seconds(i))) << i;
    book_.DidWell(kFlapping);
  }
}

TEST_F(HealthBookTest, DoingWellEndsNoTimeThatHasBegun) {
  Lose(kFlapping, absl::ZeroDuration());
  Lose(kFlapping, absl::Seconds(1));
  book_.DidWell(kFlapping);
  EXPECT_TRUE(book_.LeftOutUntil(kFlapping, kNow + absl::Seconds(2)));
}

TEST_F(HealthBookTest, ALostGpuCountsAtOnce) {
  const auto first = Lose(kFlapping, absl::ZeroDuration(), Fault::kDeviceLost);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->pause, absl::Seconds(30));
  const auto second = Lose(kFlapping, absl::Seconds(40), Fault::kDeviceLost);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->pause, absl::Seconds(60));
}

TEST_F(HealthBookTest, ManyLossesAreNotRememberedForEver) {
  for (int i = 0; i < 1000; ++i) Lose(kFlapping, absl::Milliseconds(i));
  EXPECT_EQ(book_.Losses(kFlapping, kNow + absl::Seconds(1)), 32u);
}

}  // namespace
}  // namespace longhaul::coordinator
