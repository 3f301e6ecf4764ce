// Links whose connections break, fall silent and come back.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "tests/conformance/transport/link_test.h"

namespace longhaul::transport {
namespace {

using ::testing::HasSubstr;

// Quick to suspect, slow to give up: what is waited for here is events.
LinkOptions Quick() {
  LinkOptions options;
  options.heartbeat_interval = absl::Milliseconds(10);
  options.suspect_after = absl::Milliseconds(100);
  options.peer_timeout = 2 * kPatience;
  return options;
}

// Both ways, in order, until told to stop; both lanes.
class HealTest : public LinkTest {
 protected:
  void SetUp() override {
    LinkTest::SetUp();
    PutFaultsAroundDialler();
    for (const auto& handler : {at_dialler_, at_listener_}) {
      handler->keep_payloads = false;
      const auto next = std::make_shared<std::array<uint64_t, 2>>();
      handler->on_frame = [next](Lane lane, std::span<const std::byte> payload) {
        uint64_t number = 0;
        ASSERT_GE(payload.size(), sizeof(number));
        std::memcpy(&number, payload.data(), sizeof(number));
        EXPECT_EQ(number, (*next)[static_cast<size_t>(lane)]++);
      };
    }
  }

  void SendBoth(size_t frames, size_t bytes = 30'000) {
    for (size_t i = 0; i < frames; ++i) {
      for (size_t l = 0; l < 2; ++l) {
        const auto number = std::make_shared<uint64_t>(sent_[l]++);
        const FrameView view{.header = std::as_bytes(std::span(number.get(), 1)),
                             .body = std::as_bytes(std::span(body_)).first(l == 0 ? bytes : 10)};
        for (const auto& link : {dialler_link_, listener_link_}) {
          link->Send(static_cast<Lane>(l), view,
                     [number, done = sends_.Expect()](const Status& status) { done(status); });
        }
      }
    }
  }

  void ExpectAllThere() {
    for (const auto& handler : {at_dialler_, at_listener_}) {
      EXPECT_TRUE(handler->WaitForFramesOn(Lane::kBulk, sent_[0]));
      EXPECT_TRUE(handler->WaitForFramesOn(Lane::kControl, sent_[1]));
      EXPECT_FALSE(handler->closed());
    }
    EXPECT_TRUE(sends_.WaitForAll(2 * (sent_[0] + sent_[1])));
    EXPECT_EQ(sends_.failed(), 0u);
  }

  const std::string body_ = Pattern(3, 60'000);
  std::array<uint64_t, 2> sent_{};
  SendLedger sends_;
};

INSTANTIATE_TEST_SUITE_P(Backend, HealTest, ::testing::Values(UnderTest(), SealedUnderTest()),
                         [](const auto& i) { return i.param.name; });

TEST_P(HealTest, GoesOnAfterAReset) {
  Open(Quick());
  SendBoth(100);
  ASSERT_TRUE(at_listener_->WaitForFrames(20));
  faults_.Reset();
  ASSERT_TRUE(at_dialler_->WaitForLost());
  SendBoth(100);
  EXPECT_TRUE(at_dialler_->WaitForHealed());
  EXPECT_TRUE(at_listener_->WaitForHealed());
  ExpectAllThere();
  EXPECT_GE(dialler_link_->stats().reconnects, 1u);
  EXPECT_GE(listener_link_->stats().reconnects, 1u);
}

TEST_P(HealTest, GoesOnAfterOneOfTwoConnectionsBreaks) {
  Open(Quick());
  SendBoth(50);
  faults_.ResetFirst();
  EXPECT_TRUE(at_dialler_->WaitForHealed());
  SendBoth(50);
  ExpectAllThere();
}

TEST_P(HealTest, GoesOnAfterManyResetsUnderLoad) {
  Open(Quick());
  constexpr int kResets = 8;
  for (int i = 1; i <= kResets; ++i) {
    SendBoth(40);
    faults_.Reset();
    ASSERT_TRUE(at_dialler_->WaitForHealed(i)) << i;
  }
  ExpectAllThere();
  EXPECT_EQ(dialler_link_->stats().reconnects, uint64_t{kResets});
}

TEST_P(HealTest, GoesOnAfterACut) {
  Open(Quick());
  SendBoth(50);
  faults_.Cut();
  ASSERT_TRUE(at_dialler_->WaitForSuspect());
  ASSERT_TRUE(at_listener_->WaitForSuspect());
  SendBoth(50);
  faults_.Restore();
  ExpectAllThere();
}

// The old connections never come back; nobody says that they are gone.
TEST_P(HealTest, TakesNewConnectionsWhereTheOldOnesStaySilent) {
  Open(Quick());
  SendBoth(50);
  faults_.CutForGood();
  EXPECT_TRUE(at_dialler_->WaitForHealed());
  SendBoth(50);
  ExpectAllThere();
}

// The tensors' connection is dead, the other one shows that the peer lives.
TEST_P(HealTest, ReplacesOneOfTwoConnectionsThatIsSilentlyDead) {
  LinkOptions options = Quick();
  options.peer_timeout = absl::Seconds(1);
  Open(options);
  SendBoth(50);
  ASSERT_TRUE(at_listener_->WaitForFramesOn(Lane::kBulk, 50));
  ASSERT_TRUE(at_dialler_->WaitForFramesOn(Lane::kBulk, 50));
  faults_.CutFirstForGood();
  SendBoth(50);
  EXPECT_TRUE(at_dialler_->WaitForHealed());
  ExpectAllThere();
}

// The peer keeps its process and its links, and has another address.
TEST_P(HealTest, FollowsAPeerThatMoved) {
  Open(Quick());
  SendBoth(50);
  faults_.Move(listener_->address(), "elsewhere");
  faults_.Reset();
  ASSERT_TRUE(at_dialler_->WaitForLost());
  SendBoth(50);
  dialler_->Readdress(Key(), {"elsewhere"});
  EXPECT_TRUE(at_dialler_->WaitForHealed());
  // Said while all is well, it counts at the next break.
  faults_.Move("elsewhere", "a third place");
  dialler_->Readdress(Key(), {"nowhere", "a third place"});
  SendBoth(50);
  faults_.Reset();
  EXPECT_TRUE(at_dialler_->WaitForHealed(2));
  ExpectAllThere();
}

// Others' links and the listening side do not care.
TEST_P(HealTest, ReaddressIsForTheDialledLinkOnly) {
  Open(Quick());
  dialler_->Readdress(Key(7), {"elsewhere"});
  listener_->Readdress(Key(), {"elsewhere"});
  faults_.Reset();
  EXPECT_TRUE(at_dialler_->WaitForHealed());
  SendBoth(50);
  ExpectAllThere();
}

TEST_P(HealTest, CloseSendsWhatWasAcceptedOverANewConnection) {
  LinkOptions options = Quick();
  options.credits = 3;
  Open(options);
  constexpr size_t kFrames = 100;
  for (size_t i = 0; i < kFrames; ++i) {
    const auto number = std::make_shared<uint64_t>(i);
    dialler_link_->Send(Lane::kBulk,
                        {.header = std::as_bytes(std::span(number.get(), 1)),
                         .body = std::as_bytes(std::span(body_))},
                        [number, done = sends_.Expect()](const Status& status) { done(status); });
  }
  dialler_link_->Close(Deadline::After(kPatience));
  ASSERT_TRUE(at_listener_->WaitForFrames(5));
  faults_.Reset();
  EXPECT_EQ(at_dialler_->WaitForClosed().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(at_listener_->WaitForClosed().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(at_listener_->FramesOn(Lane::kBulk), kFrames);
  EXPECT_TRUE(sends_.WaitForAll(kFrames));
  EXPECT_EQ(sends_.ok(), kFrames);
}

TEST_P(HealTest, CloseWhileLostEndsAtItsDeadline) {
  Open(Quick());
  faults_.Cut();
  SendBoth(3);
  ASSERT_TRUE(at_dialler_->WaitForSuspect());
  dialler_link_->Close(Deadline::After(absl::Milliseconds(100)));
  EXPECT_EQ(at_dialler_->WaitForClosed().code(), absl::StatusCode::kCancelled);
  listener_link_->Close(Deadline::After(absl::Milliseconds(100)));
  EXPECT_EQ(at_listener_->WaitForClosed().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(sends_.WaitForAll(12));
}

// A peer that was started anew at the same address does not know the link: that is an answer.
TEST_P(HealTest, EndsAtOnceWhereThePeerNoLongerHasTheLink) {
  LinkOptions options = Quick();
  Open(options);
  faults_.Cut();
  ASSERT_TRUE(at_listener_->WaitForSuspect());
  listener_link_->Close(Deadline::After(absl::ZeroDuration()));
  ASSERT_EQ(at_listener_->WaitForClosed().code(), absl::StatusCode::kCancelled);
  faults_.Restore();
  const Status reason = at_dialler_->WaitForClosed();
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(reason)),
              testing::AnyOf(HasSubstr("no longer has the link"), HasSubstr("the peer ended"),
                             HasSubstr("the peer closed")));
}

TEST_P(HealTest, EndsWhenThePeerStaysAway) {
  LinkOptions options = Quick();
  options.peer_timeout = absl::Milliseconds(600);
  Open(options);
  SendBoth(5);
  ASSERT_TRUE(at_listener_->WaitForFrames(10));
  faults_.Cut();
  const Status here = at_dialler_->WaitForClosed();
  const Status there = at_listener_->WaitForClosed();
  EXPECT_EQ(here.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(there.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(here)), HasSubstr("0.6 s"));
  EXPECT_THAT(std::string(Message(there)), HasSubstr("0.6 s"));
  EXPECT_TRUE(sends_.WaitForAll(20));
}

}  // namespace
}  // namespace longhaul::transport
