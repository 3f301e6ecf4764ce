// How links end.
#include <gmock/gmock.h>

#include <atomic>

#include "tests/conformance/transport/link_test.h"

namespace longhaul::transport {
namespace {

using ::testing::HasSubstr;

// A peer that goes in good order or by force is noticed at once, not by its silence, which takes a
// peer_timeout of 10 s.
constexpr absl::Duration kPrompt = absl::Seconds(8);

TEST_P(LinkTest, CloseEndsBothSides) {
  Open();
  dialler_link_->Close(Deadline::After(kPatience));
  EXPECT_EQ(at_dialler_->WaitForClosed(kPrompt).code(), absl::StatusCode::kCancelled);
  const Status there = at_listener_->WaitForClosed(kPrompt);
  EXPECT_EQ(there.code(), absl::StatusCode::kUnavailable) << there;
  EXPECT_THAT(std::string(Message(there)), HasSubstr("the peer closed the link"));
  dialler_link_->Close(Deadline::After(kPatience));  // idempotent
  listener_link_->Close(Deadline::After(kPatience));
}

TEST_P(LinkTest, CloseOnBothSidesAtOnce) {
  Open();
  dialler_link_->Close(Deadline::After(kPatience));
  listener_link_->Close(Deadline::After(kPatience));
  // Who was first is a race; that both end is not.
  EXPECT_NE(at_dialler_->WaitForClosed(kPrompt).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(at_listener_->WaitForClosed(kPrompt).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(LinkTest, CloseSendsWhatWasAccepted) {
  LinkOptions options;
  options.credits = 3;  // so that most of it waits for credits when Close comes
  Open(options);
  constexpr size_t kFrames = 200;
  SendLedger sends;
  const std::string body = Pattern(1, 20'000);
  for (size_t i = 0; i < kFrames; ++i) {
    dialler_link_->Send(Lane::kBulk, BodyOf(body), sends.Expect());
  }
  const std::string last = "norm";
  dialler_link_->Send(Lane::kControl, BodyOf(last), sends.Expect());
  dialler_link_->Close(Deadline::After(kPatience));
  EXPECT_EQ(at_dialler_->WaitForClosed().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(at_listener_->WaitForClosed().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(at_listener_->FramesOn(Lane::kBulk), kFrames);
  EXPECT_EQ(at_listener_->FramesOn(Lane::kControl), 1u);
  EXPECT_TRUE(sends.WaitForAll(kFrames + 1));
  EXPECT_EQ(sends.ok(), kFrames + 1);
}

// The peer takes nothing: at the deadline the frames that wait get their `done` all the same.
TEST_P(LinkTest, CloseGivesUpAtItsDeadline) {
  Notification go_on;
  std::atomic<bool> first{true};
  at_listener_->on_frame = [&](Lane, std::span<const std::byte>) {
    if (first.exchange(false)) {
      EXPECT_TRUE(go_on.WaitFor(kPatience));
    }
  };
  LinkOptions options;
  options.credits = 2;
  // Other connections may break before the listener has read why.
  if (!GetParam().is_stream) options.peer_timeout = absl::Seconds(1);
  Open(options);
  constexpr size_t kFrames = 40;
  SendLedger sends;
  const std::string body = Pattern(1, 30'000);
  for (size_t i = 0; i < kFrames; ++i) {
    dialler_link_->Send(Lane::kBulk, BodyOf(body), sends.Expect());
  }
  dialler_link_->Close(Deadline::After(absl::Milliseconds(200)));
  EXPECT_EQ(at_dialler_->WaitForClosed(kPrompt).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(sends.WaitForAll(kFrames));
  EXPECT_GE(sends.failed(), kFrames - 2 * options.credits);
  for (const Status& failure : sends.failures()) {
    EXPECT_EQ(failure.code(), absl::StatusCode::kCancelled);
  }
  go_on.Notify();
  EXPECT_EQ(at_listener_->WaitForClosed(kPrompt).code(), absl::StatusCode::kUnavailable);
}

TEST_P(LinkTest, SendAfterCloseIsCancelled) {
  Open();
  dialler_link_->Close(Deadline::After(kPatience));
  SendLedger sends;
  const std::string text = "late";
  dialler_link_->Send(Lane::kBulk, BodyOf(text), sends.Expect());
  ASSERT_TRUE(sends.WaitForAll(1));
  ASSERT_EQ(sends.failed(), 1u);
  EXPECT_EQ(sends.failures()[0].code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(at_dialler_->WaitForClosed().code(), absl::StatusCode::kCancelled);
}

TEST_P(LinkTest, SendAfterThePeerIsGoneSaysSo) {
  Open();
  listener_link_->Close(Deadline::After(kPatience));
  EXPECT_EQ(at_dialler_->WaitForClosed(kPrompt).code(), absl::StatusCode::kUnavailable);
  SendLedger sends;
  const std::string text = "late";
  dialler_link_->Send(Lane::kBulk, BodyOf(text), sends.Expect());
  ASSERT_TRUE(sends.WaitForAll(1));
  ASSERT_EQ(sends.failed(), 1u);
  EXPECT_EQ(sends.failures()[0].code(), absl::StatusCode::kUnavailable);
}

TEST_P(LinkTest, LettingGoOfALinkClosesIt) {
  Open();
  dialler_link_.reset();
  EXPECT_EQ(at_dialler_->WaitForClosed(kPrompt).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(at_listener_->WaitForClosed(kPrompt).code(), absl::StatusCode::kUnavailable);
}

TEST_P(LinkTest, CloseInsideOnFrame) {
  std::atomic<Link*> link = nullptr;
  at_listener_->on_frame = [&](Lane, std::span<const std::byte>) {
    link.load()->Close(Deadline::After(kPatience));
  };
  Open();
  link = listener_link_.get();
  SendLedger sends;
  const std::string text = "go";
  dialler_link_->Send(Lane::kBulk, BodyOf(text), sends.Expect());
  EXPECT_EQ(at_listener_->WaitForClosed(kPrompt).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(at_dialler_->WaitForClosed(kPrompt).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(sends.WaitForAll(1));
}

TEST_P(LinkTest, LettingGoInsideDoneAndOnClosed) {
  std::mutex mutex;
  std::shared_ptr<Link> last;
  at_listener_->on_closed = [&] {
    const std::lock_guard lock(mutex);
    last.reset();
  };
  Open();
  {
    const std::lock_guard lock(mutex);
    last = std::move(listener_link_);
  }
  const std::string text = "go";
  Notification done;
  // The `done` holds the last reference to its own link.
  dialler_link_->Send(Lane::kBulk, BodyOf(text), [this, &done](const Status&) {
    dialler_link_.reset();
    done.Notify();
  });
  EXPECT_TRUE(done.WaitFor(kPatience));
  EXPECT_EQ(at_dialler_->WaitForClosed(kPrompt).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(at_listener_->WaitForClosed(kPrompt).code(), absl::StatusCode::kUnavailable);
}

TEST_P(LinkTest, DestroyingTheTransportEndsItsLinks) {
  Open();
  SendLedger sends;
  const std::string body = Pattern(1, 50'000);
  constexpr size_t kFrames = 100;
  for (size_t i = 0; i < kFrames; ++i) {
    dialler_link_->Send(Lane::kBulk, BodyOf(body), sends.Expect());
  }
  dialler_.reset();
  EXPECT_TRUE(at_dialler_->closed()) << "OnClosed comes before the destructor returns";
  EXPECT_EQ(at_dialler_->WaitForClosed().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(sends.WaitForAll(kFrames));
  EXPECT_EQ(at_listener_->WaitForClosed(kPrompt).code(), absl::StatusCode::kUnavailable);

  // The link's handle outlives its transport and still answers.
  SendLedger late;
  dialler_link_->Send(Lane::kBulk, BodyOf(body), late.Expect());
  dialler_link_->Close(Deadline::After(kPatience));
  ASSERT_TRUE(late.WaitForAll(1));
  EXPECT_EQ(late.failed(), 1u);
  EXPECT_GT(dialler_link_->stats().frames_sent, 0u);
}

TEST_P(LinkTest, DestroyingTheTransportEndsWhatIsOpening) {
  OpenResult expected;
  OpenResult dialled;
  listener_->Expect(Key(), kSecret, at_listener_, With({}), Deadline::After(kPatience),
                    expected.Done());
  listener_->Dial({GetParam().nobody}, Key(1), kSecret, at_listener_, With({}),
                  Deadline::After(kPatience), dialled.Done());
  listener_.reset();
  EXPECT_EQ(expected.Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(dialled.Wait().status().code(), absl::StatusCode::kCancelled);
}

TEST_P(LinkTest, TheSameKeyOpensAgainAfterAnEnd) {
  for (int i = 0; i < 5; ++i) {
    at_dialler_ = std::make_shared<RecordingHandler>();
    at_listener_ = std::make_shared<RecordingHandler>();
    Open();
    SendLedger sends;
    const std::string text = Pattern(i, 1000);
    dialler_link_->Send(Lane::kBulk, BodyOf(text), sends.Expect());
    ASSERT_TRUE(at_listener_->WaitForFrames(1));
    dialler_link_.reset();
    EXPECT_NE(at_listener_->WaitForClosed(kPrompt).code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(sends.WaitForAll(1));
  }
}

TEST_P(LinkTest, SilenceIsSuspectAndItsEndIsHealthy) {
  Notification go_on;
  at_listener_->on_frame = [&](Lane, std::span<const std::byte>) {
    EXPECT_TRUE(go_on.WaitFor(kPatience));
  };
  LinkOptions options;
  options.heartbeat_interval = absl::Milliseconds(10);
  options.suspect_after = absl::Milliseconds(100);
  options.peer_timeout = kPatience;
  Open(options);
  SendLedger sends;
  const std::string text = "stop";
  dialler_link_->Send(Lane::kControl, BodyOf(text), sends.Expect());
  EXPECT_TRUE(at_dialler_->WaitForSuspect());  // the listener's loop stands still
  go_on.Notify();
  EXPECT_TRUE(at_dialler_->WaitForHealthy());
  EXPECT_GE(dialler_link_->stats().longest_silence, options.suspect_after);
  EXPECT_FALSE(at_dialler_->closed());
  EXPECT_FALSE(at_listener_->closed());
}

TEST_P(LinkTest, ASilentPeerIsGoneAtItsTimeout) {
  Notification go_on;
  at_listener_->on_frame = [&](Lane, std::span<const std::byte>) {
    EXPECT_TRUE(go_on.WaitFor(kPatience));
  };
  LinkOptions options;
  options.heartbeat_interval = absl::Milliseconds(10);
  options.suspect_after = absl::Milliseconds(50);
  options.peer_timeout = absl::Milliseconds(300);
  Open(options);
  SendLedger sends;
  const std::string text = "stop";
  dialler_link_->Send(Lane::kControl, BodyOf(text), sends.Expect());
  const Status reason = at_dialler_->WaitForClosed();
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(reason)), HasSubstr("no sign of life"));
  EXPECT_TRUE(at_dialler_->WaitForSuspect());
  EXPECT_TRUE(sends.WaitForAll(1));
  go_on.Notify();
  EXPECT_EQ(at_listener_->WaitForClosed().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace longhaul::transport
