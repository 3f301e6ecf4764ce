// A run that stands still while all its workers are there and all links are well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Progress : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& worker : kAb) c.Join(worker);
    RunSpec spec = SmallSpec("tiny", 2);
    spec.recovery.attempts = 5;
    spec.train.steps = 20;
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
  }
  // A heartbeat a second of both.
  void Pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      c.Advance(absl::Seconds(1));
      for (const std::string& worker : kAb) Beat(worker);
    }
  }
  void Beat(const std::string& worker) {
    v1::WorkerMessage message;
    v1::AtHand& at_hand = *message.mutable_heartbeat()->mutable_at_hand();
    at_hand.set_run_id("tiny-1");
    at_hand.set_stamp(c.StampAt("tiny-1", c.views().RunOf("tiny-1")->epoch()));
    at_hand.set_step(2);
    at_hand.set_doing(doing[worker]);
    at_hand.set_progress(progress[worker]);
    at_hand.set_writes_state(writes_state);
    c.Tick(c.Said(worker, message));
  }

  std::map<std::string, std::string> doing = {{"a", "waiting for a gradient"},
                                              {"b", "waiting for an activation"}};
  std::map<std::string, uint64_t> progress;
  bool writes_state = false;
  Coordinator c;
};

TEST_F(Progress, ARunThatStandsStillIsInterruptedWithWhatEachStageSaid) {
  c.Steps(kAb, "tiny-1", 1);
  Pass(119);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  Pass(1);
  EXPECT_NE(c.StateOf("tiny-1"), "running");
  bool said = false;
  for (const v1::Event& event : c.events) {
    said = said || ::testing::Matches(AllOf(
                       HasSubstr("no stage has made progress for "), HasSubstr(" after step 1: "),
                       HasSubstr("worker a (stage 0) is waiting for a gradient in step 2"),
                       HasSubstr("worker b (stage 1) is waiting for an activation in step 2")))(
                       event.text());
  }
  EXPECT_TRUE(said);
  EXPECT_EQ(c.views().RunOf("tiny-1")->epoch(), 2u) << "it goes on by itself";
}

TEST_F(Progress, AStageThatMovesIsEnough) {
  c.Steps(kAb, "tiny-1", 1);
  for (int i = 0; i < 10; ++i) {
    Pass(100);
    ++progress["b"];  // such as a long validation
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(Progress, SlowStepsHaveMoreTime) {
  v1::StepReport report = c.Report(1, 0, 2);
  report.set_seconds(10);
  c.Step("a", "tiny-1", report);
  c.Step("b", "tiny-1", c.Report(1, 1, 2));
  Pass(199);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  Pass(1);
  EXPECT_NE(c.StateOf("tiny-1"), "running");
}

TEST_F(Progress, TheFirstStepHasMoreTime) {
  Pass(1199);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  Pass(1);
  EXPECT_NE(c.StateOf("tiny-1"), "running");
}

TEST_F(Progress, ALinkInTroubleExplainsIt) {
  c.Steps(kAb, "tiny-1", 1);
  c.Link("a", "tiny-1", 0, "suspect");
  Pass(300);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  c.Link("a", "tiny-1", 0, "healthy");
  Pass(119);
  EXPECT_EQ(c.StateOf("tiny-1"), "running") << "it counts from when the link was well again";
  Pass(1);
  EXPECT_NE(c.StateOf("tiny-1"), "running");
}

TEST_F(Progress, ADiskIsWaitedFor) {
  c.Steps(kAb, "tiny-1", 1);
  writes_state = true;
  Pass(300);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

}  // namespace
}  // namespace longhaul::coordinator
