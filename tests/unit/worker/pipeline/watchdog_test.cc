// Whether a thread is stuck, and what counts as being stuck.
#include "worker/pipeline/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/notification.h"
#include "tests/support/mailbox.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Mailbox;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = WorkAtHand::Kind;

const MonoTime kStart = MonoTime() + absl::Hours(1);

TEST(TimeAtOnePiece, GrowsWhileThePieceIsTheSame) {
  TimeAtOnePiece time(absl::Seconds(1));
  for (int second = 0; second < 61; ++second) {
    EXPECT_EQ(time.Look(7, kStart + absl::Seconds(second)), absl::Seconds(second));
  }
  EXPECT_EQ(time.Look(8, kStart + absl::Seconds(61)), absl::ZeroDuration());
  EXPECT_EQ(time.Look(8, kStart + absl::Seconds(62)), absl::Seconds(1));
}

TEST(TimeAtOnePiece, AWaitForANeighbourIsNoPiece) {
  TimeAtOnePiece time(absl::Seconds(1));
  for (int second = 0; second < 1000; ++second) {
    EXPECT_EQ(time.Look(std::nullopt, kStart + absl::Seconds(second)), absl::ZeroDuration());
  }
  EXPECT_EQ(time.Look(1, kStart + absl::Seconds(1000)), absl::ZeroDuration());
}

// Stopped with SIGSTOP, or the machine was asleep: the watchdog itself was not there.
TEST(TimeAtOnePiece, TimeInWhichNobodyLookedIsNoHang) {
  TimeAtOnePiece time(absl::Seconds(1));
  time.Look(7, kStart);
  EXPECT_EQ(time.Look(7, kStart + absl::Hours(3)), absl::Seconds(2));
}

TEST(LimitOf, IsTwentyMedianStepsAndNeverLessThanTheTimeout) {
  const WorkAtHand::Piece forward{.kind = Kind::kForward};
  EXPECT_EQ(LimitOf(forward, absl::Seconds(1), absl::Seconds(60)), absl::Seconds(60));
  EXPECT_EQ(LimitOf(forward, absl::Seconds(9), absl::Seconds(60)), absl::Seconds(180));
  EXPECT_EQ(LimitOf(forward, std::nullopt, absl::Seconds(60)), absl::Seconds(600))
      << "the first step has more time";
  EXPECT_EQ(LimitOf({.kind = Kind::kDisk}, absl::Seconds(1), absl::Seconds(60)),
            absl::Seconds(600));
}

TEST(WorkAtHand, SaysWhatItIs) {
  WorkAtHand work;
  EXPECT_FALSE(work.piece());
  work.BeginStep(Step(118));
  const uint64_t before = work.progress();
  {
    const WorkAtHand::Scope scope(&work, Kind::kBackward, Microbatch(3));
    EXPECT_EQ(work.Doing(), "in the backward pass of microbatch 3");
    EXPECT_EQ(work.step(), Step(118));
    EXPECT_GT(work.progress(), before);
  }
  EXPECT_FALSE(work.piece());
  EXPECT_EQ(work.progress(), before + 2);
  work.BeginWait(WorkAtHand::Wait::kGradient);
  EXPECT_THAT(work.Doing(), StartsWith("waiting for a gradient"));
  EXPECT_FALSE(work.piece());
  EXPECT_FALSE(work.MedianStep());
  for (const int seconds : {3, 1, 2}) work.EndStep(absl::Seconds(seconds));
  EXPECT_EQ(work.MedianStep(), absl::Seconds(2));
}

class WatchdogTest : public ::testing::Test {
 protected:
  void Watch() {
    work_.BeginStep(Step(118));
    work_.EndStep(absl::Milliseconds(1));
    watchdog_ = std::make_unique<Watchdog>(&work_, &codec_thread_, absl::Milliseconds(40),
                                           [this](const std::string& hang) { hangs_.Push(hang); });
  }

  WorkAtHand work_;
  Notification over_;  // outlives the thread that waits for it
  CodecThread codec_thread_;
  Mailbox<std::string> hangs_;
  std::unique_ptr<Watchdog> watchdog_;
};

TEST_F(WatchdogTest, FindsAComputeThreadThatIsStuck) {
  const WorkAtHand::Scope scope(&work_, Kind::kForward, Microbatch(2));
  Watch();
  EXPECT_THAT(hangs_.Take().value_or(""),
              AllOf(StartsWith("has made no progress for "),
                    HasSubstr(" s in step 118: in the forward pass of microbatch 2")));
}

TEST_F(WatchdogTest, FindsACodecThreadThatIsStuckWhileTheOtherWaitsForIt) {
  work_.BeginWait(WorkAtHand::Wait::kInput);
  codec_thread_.Post([this] { over_.Wait(); });
  Watch();
  EXPECT_THAT(hangs_.Take().value_or(""), HasSubstr("step 118: encoding or decoding a tensor"));
  over_.Notify();
}

}  // namespace
}  // namespace longhaul::worker
