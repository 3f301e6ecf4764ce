#include "transport/p2p/core/flow.h"

#include <gtest/gtest.h>

namespace longhaul::transport::internal {
namespace {

TEST(SendWindowTest, CreditsBoundWhatIsSent) {
  SendWindow window(2);
  EXPECT_EQ(window.Take(), 1u);
  EXPECT_TRUE(window.MaySend());
  EXPECT_EQ(window.Take(), 2u);
  EXPECT_FALSE(window.MaySend());
  EXPECT_TRUE(window.OnAcknowledgement(1, 2).ok());
  EXPECT_TRUE(window.MaySend());
  EXPECT_EQ(window.Take(), 3u);
  EXPECT_FALSE(window.MaySend());
}

TEST(SendWindowTest, OldNewsTakesNothingBack) {
  SendWindow window(4);
  for (int i = 0; i < 4; ++i) window.Take();
  EXPECT_TRUE(window.OnAcknowledgement(4, 4).ok());
  EXPECT_TRUE(window.OnAcknowledgement(1, 4).ok());
  EXPECT_EQ(window.acknowledged(), 4u);
  EXPECT_TRUE(window.MaySend());
}

TEST(SendWindowTest, RefusesNonsense) {
  SendWindow window(4);
  window.Take();
  EXPECT_EQ(window.OnAcknowledgement(2, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(window.OnAcknowledgement(1, kMaxCredits + 1).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ReceiveWindowTest, Grows) {
  ReceiveWindow window(4);
  EXPECT_FALSE(window.TellPending());
  window.Grow(9);
  EXPECT_EQ(window.credits(), 9u);
  EXPECT_TRUE(window.TellDue());
  EXPECT_TRUE(window.TellPending());
  window.Told();
  EXPECT_FALSE(window.TellPending());
  window.Grow(8);
  EXPECT_EQ(window.credits(), 9u);
  EXPECT_FALSE(window.TellDue());
  window.Grow(kMaxCredits + 1);
  EXPECT_EQ(window.credits(), kMaxCredits);
}

TEST(ReceiveWindowTest, ANewConnectionDoesNotKnowThatItHasGrown) {
  ReceiveWindow window(4);
  window.Resume(0);
  EXPECT_FALSE(window.TellPending());
  window.Grow(9);
  window.Told();
  window.Resume(0);
  EXPECT_TRUE(window.TellPending());
}

TEST(ReceiveWindowTest, TakesFramesInOrderOnly) {
  ReceiveWindow window(4);
  EXPECT_TRUE(*window.Accept(1));
  EXPECT_EQ(window.handled(), 0u);
  window.Handled();
  EXPECT_EQ(window.handled(), 1u);
  EXPECT_EQ(window.Accept(3).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(window.Accept(1).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(*window.Accept(2));
}

TEST(ReceiveWindowTest, ANewConnectionMayRepeatButNotSkip) {
  ReceiveWindow window(4);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) EXPECT_TRUE(*window.Accept(sequence));
  window.Handled();
  window.Resume(1);
  EXPECT_TRUE(window.TellPending());
  EXPECT_EQ(window.Accept(5).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(window.Accept(0).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(*window.Accept(2));
  EXPECT_EQ(window.Accept(2).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(*window.Accept(3));
  EXPECT_TRUE(*window.Accept(4));
  window.Resume(4);
  EXPECT_TRUE(*window.Accept(5));
}

TEST(ReceiveWindowTest, TellsAtAQuarterOfTheWindow) {
  ReceiveWindow window(8);
  EXPECT_TRUE(*window.Accept(1));
  window.Handled();
  EXPECT_FALSE(window.TellDue());
  EXPECT_TRUE(window.TellPending());
  EXPECT_TRUE(*window.Accept(2));
  window.Handled();
  EXPECT_TRUE(window.TellDue());
  window.Told();
  EXPECT_FALSE(window.TellDue());
  EXPECT_FALSE(window.TellPending());
}

TEST(ReceiveWindowTest, TellsEachFrameOfASmallWindow) {
  ReceiveWindow window(1);
  EXPECT_FALSE(window.TellDue());
  EXPECT_TRUE(*window.Accept(1));
  window.Handled();
  EXPECT_TRUE(window.TellDue());
}

TEST(ReceiveWindowTest, TellsOfALargeWindowLongBeforeAQuarter) {
  ReceiveWindow window(1024);
  for (uint64_t sequence = 1; sequence <= kMostUntold; ++sequence) {
    EXPECT_FALSE(window.TellDue());
    EXPECT_TRUE(*window.Accept(sequence));
    window.Handled();
  }
  EXPECT_TRUE(window.TellDue());
}

class PeerWatchTest : public ::testing::Test {
 protected:
  MonoTime At(int ms) const { return start_ + absl::Milliseconds(ms); }
  const MonoTime start_ = MonoTime() + absl::Hours(1);
  PeerWatch watch_{LinkOptions{.suspect_after = absl::Milliseconds(500),
                               .peer_timeout = absl::Milliseconds(2000)},
                   start_};
};

TEST_F(PeerWatchTest, SuspectOnceThenGone) {
  EXPECT_EQ(watch_.Tick(At(499), {}), PeerWatch::Verdict::kNone);
  EXPECT_EQ(watch_.Tick(At(500), {}), PeerWatch::Verdict::kSuspect);
  EXPECT_EQ(watch_.Tick(At(600), {}), PeerWatch::Verdict::kNone);
  EXPECT_EQ(watch_.Tick(At(1999), {}), PeerWatch::Verdict::kNone);
  EXPECT_EQ(watch_.Tick(At(2000), {}), PeerWatch::Verdict::kGone);
}

TEST_F(PeerWatchTest, ASignOfLifeEndsSuspicion) {
  EXPECT_FALSE(watch_.Heard(At(100)));
  EXPECT_EQ(watch_.Tick(At(700), {}), PeerWatch::Verdict::kSuspect);
  EXPECT_TRUE(watch_.Heard(At(900)));
  EXPECT_FALSE(watch_.Heard(At(901)));
  EXPECT_EQ(watch_.longest_silence(), absl::Milliseconds(800));
  EXPECT_EQ(watch_.Tick(At(1401), {}), PeerWatch::Verdict::kSuspect);
}

TEST_F(PeerWatchTest, OwnStallsAreNotThePeersSilence) {
  EXPECT_EQ(watch_.Tick(At(3000), absl::Milliseconds(2900)), PeerWatch::Verdict::kNone);
  EXPECT_EQ(watch_.Tick(At(3400), {}), PeerWatch::Verdict::kSuspect);
  // Never into the future.
  EXPECT_EQ(watch_.Tick(At(3450), absl::Hours(1)), PeerWatch::Verdict::kNone);
  EXPECT_EQ(watch_.Silence(At(3450)), absl::ZeroDuration());
}

}  // namespace
}  // namespace longhaul::transport::internal
