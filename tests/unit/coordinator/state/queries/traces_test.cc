// `longhaul trace`: all stages are asked, and one answer is made of theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class Traces : public ::testing::Test {
 protected:
  void SetUp() override {
    c.Join("a");
    c.Join("b");
  }
  void Train() {
    c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    c.Steps(kAb, "tiny-1", 1);
    c.Forget();
  }
  void Ask(const std::string& run, uint64_t request = 9) {
    c.Tick(event::TraceAsked{RequestId(request), run, 2});
  }
  // `worker` answers what it was asked last, with that many steps of that many spans.
  void Answer(const std::string& worker, int steps, int spans = 1) {
    const v1::WorkerCommand* asked = c.Last(worker, v1::WorkerCommand::kSendTrace);
    ASSERT_NE(asked, nullptr);
    v1::WorkerMessage message;
    v1::StageTrace& trace = *message.mutable_trace();
    trace.set_request(asked->send_trace().request());
    for (int step = 1; step <= steps; ++step) {
      v1::StepTrace& one = *trace.add_steps();
      one.set_step(static_cast<uint64_t>(step));
      for (int span = 0; span < spans; ++span) one.add_spans()->set_begin_ns(int64_t{1} << 60);
    }
    Say(worker, message);
  }
  void Say(const std::string& worker, const v1::WorkerMessage& message) {
    v1::WorkerMessage about = c.About("tiny-1");
    about.MergeFrom(message);
    c.Tick(c.Said(worker, std::move(about)));
  }
  const command::Reply<v1::TraceReply>* Reply() const {
    return c.LastReply<command::Reply<v1::TraceReply>>();
  }
  std::string Refusal() const {
    return Reply() == nullptr ? "no reply" : std::string(Message(Reply()->reply.status()));
  }
  Coordinator c;
};

TEST_F(Traces, AreOfAllStagesInOrder) {
  Train();
  Ask("tiny");
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kSendTrace)->send_trace().steps(), 2u);
  Answer("b", 2);
  EXPECT_EQ(Reply(), nullptr);
  Answer("a", 1);
  ASSERT_NE(Reply(), nullptr);
  ASSERT_TRUE(Reply()->reply.ok()) << Reply()->reply.status();
  const v1::TraceReply& trace = *Reply()->reply;
  EXPECT_EQ(Reply()->request, RequestId(9));
  EXPECT_EQ(trace.run_id(), "tiny-1");
  ASSERT_EQ(trace.stages_size(), 2);
  EXPECT_EQ(trace.stages(0).steps_size(), 1);
  EXPECT_EQ(trace.stages(1).cell().stage(), 1u);
  EXPECT_EQ(trace.stages(1).steps_size(), 2);
  EXPECT_EQ(trace.plan().assignment().cells_size(), 2);
}

TEST_F(Traces, OfARunThatIsOverToo) {
  Train();
  for (const std::string& worker : kAb) c.Finished(worker, "tiny-1", 20);
  Ask("tiny");
  for (const std::string& worker : kAb) Answer(worker, 1);
  ASSERT_NE(Reply(), nullptr);
  EXPECT_TRUE(Reply()->reply.ok()) << Reply()->reply.status();
}

TEST_F(Traces, FitIntoAMessage) {
  Train();
  Ask("tiny");
  for (const std::string& worker : kAb) Answer(worker, 8, 30'000);
  ASSERT_TRUE(Reply()->reply.ok());
  EXPECT_LT(Reply()->reply->ByteSizeLong(), size_t{4} << 20);
  EXPECT_GE(Reply()->reply->stages(0).steps_size(), 1);
  EXPECT_EQ(Reply()->reply->stages(0).steps().rbegin()->step(), 8u);
}

TEST_F(Traces, AreRefusedWithTheReason) {
  Ask("nothing");
  EXPECT_THAT(Refusal(), HasSubstr("there is no run 'nothing'"));
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
  Ask("tiny");
  EXPECT_THAT(Refusal(), HasSubstr("has not begun to train"));
}

TEST_F(Traces, NeedAFinishedStepOfEveryStage) {
  Train();
  Ask("tiny");
  Answer("a", 0);
  EXPECT_THAT(Refusal(), HasSubstr("worker a (stage 0) has no finished step of run tiny-1"));
  c.Forget();
  c.Tick(event::WorkerLeft{c.sessions.at("b"), "gone"});
  c.Forget();
  Ask("tiny", 10);
  EXPECT_THAT(Refusal(), HasSubstr("worker b (stage 1) is not connected"));
}

TEST_F(Traces, DoNotWaitForEver) {
  Train();
  Ask("tiny");
  Answer("b", 1);
  for (int second = 0; second < 11; ++second) {
    c.Advance(absl::Seconds(1));
    for (const std::string& worker : kAb) {
      v1::WorkerMessage beat;
      beat.mutable_heartbeat();
      Say(worker, beat);
    }
  }
  EXPECT_THAT(Refusal(), HasSubstr("no trace came from worker a (stage 0) within 10 s"));
  Answer("a", 1);  // too late, and about nothing
}

TEST_F(Traces, AreFewAtOnce) {
  Train();
  for (uint64_t request = 1; request <= 5; ++request) Ask("tiny", request);
  EXPECT_EQ(Reply()->request, RequestId(5));
  EXPECT_EQ(Reply()->reply.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace longhaul::coordinator
