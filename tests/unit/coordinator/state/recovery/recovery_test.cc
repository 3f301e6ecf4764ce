// After a loss a run goes on by itself: in place, or planned anew, and not for ever.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Recovering : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& worker : kAbc) c.Join(worker);
    RunSpec spec = SmallSpec("tiny", 3);
    spec.recovery.attempts = 5;
    spec.train.steps = 20;
    c.Tick(SubmitOf(spec, "tiny-1"));
  }
  // Step 3 is finished, and a checkpoint of step 2 committed.
  void Train() {
    c.ToRunning(kAbc, "tiny-1");
    for (uint64_t step = 1; step <= 3; ++step) c.Steps(kAbc, "tiny-1", step);
    c.Shards(kAbc, "tiny-1", 2);
  }
  void KillB() { c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}}); }
  void ReadyAll(uint64_t start_step) {
    for (const std::string& worker : kAbc) c.Ready(worker, "tiny-1", start_step);
  }
  v1::RunStatus Run() { return *c.views().RunOf("tiny-1"); }

  const std::vector<std::string> kAbc = {"a", "b", "c"};
  Coordinator c;
};

TEST_F(Recovering, InPlaceWhenTheWorkerIsStartedAgain) {
  Train();
  c.Forget();
  KillB();
  EXPECT_EQ(c.StateOf("tiny-1"), "recovering");
  EXPECT_THAT(Run().reason(), HasSubstr("worker b (stage 1) was lost after step 3"));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);
  EXPECT_EQ(c.Count("c", v1::WorkerCommand::kAbort), 1);
  c.Forget();
  c.Join(HelloOf("b", "2"));
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(Run().epoch(), 2u);
  EXPECT_THAT(c.LastEvent("state"), HasSubstr("epoch 2 goes on from step 2, in place: 1 steps are "
                                              "repeated"));
  for (const std::string& worker : kAbc) {
    EXPECT_EQ(c.Count(worker, v1::WorkerCommand::kMeasure), 0) << worker;
    ASSERT_EQ(c.Count(worker, v1::WorkerCommand::kAssign), 1) << worker;
    const v1::Assign& assign = c.Last(worker, v1::WorkerCommand::kAssign)->assign();
    EXPECT_EQ(assign.assignment().start_step(), 2u);
    EXPECT_EQ(assign.resume_files_size(), 1);
  }
  ReadyAll(2);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  c.Steps(kAbc, "tiny-1", 3);
  EXPECT_EQ(Run().step(), 3u);
}

TEST_F(Recovering, WithoutACheckpointItBeginsFromScratch) {
  c.ToRunning(kAbc, "tiny-1");
  c.Steps(kAbc, "tiny-1", 1);
  KillB();
  c.Join(HelloOf("b", "2"));
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  ReadyAll(0);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(Recovering, ItSaysForWhomItWaits) {
  Train();
  KillB();
  EXPECT_THAT(c.LastEvent("state"), HasSubstr("waits for worker b (stage 1) to come back"));
  EXPECT_EQ(Run().stages(1).state(), "lost");
  EXPECT_EQ(Run().stages(0).state(), "waiting");
  EXPECT_EQ(c.views().Workers(c.now)[0].run_id(), "tiny-1") << "it is kept for the run";
}

// After a minute its workers are free for others; it goes on when the worker is back.
TEST_F(Recovering, FromTheQueueWhenTheWorkerStaysAway) {
  Train();
  KillB();
  c.Pass(absl::Seconds(61), {"a", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "queued");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("waits for worker b"));
  c.Join(HelloOf("b", "2"));
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_EQ(Run().step(), 2u);
}

TEST_F(Recovering, AnErrorOfAStageIsTriedOnceMore) {
  Train();
  c.Error("b", "tiny-1", "the GPU fell off the bus");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  ReadyAll(2);
  c.Steps(kAbc, "tiny-1", 3);
  c.Error("b", "tiny-1", "the GPU fell off the bus");
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(Run().reason(),
              AllOf(HasSubstr("the GPU fell off the bus"), HasSubstr("for the second time")));
}

TEST_F(Recovering, TooManyInARowEndTheRun) {
  Train();
  for (int i = 0; i < 5; ++i) {
    c.Error("a", "tiny-1", "no sign of life", 0);  // the link to b
    c.Advance(absl::Seconds(1));
    c.Tick();
    ASSERT_NE(c.StateOf("tiny-1"), "failed") << i;
    // From the second time on it is planned anew, after a pause.
    for (int s = 0; s < 20 && c.StateOf("tiny-1") == "recovering"; ++s) {
      c.Pass(absl::Seconds(1), kAbc);
    }
    if (c.StateOf("tiny-1") == "planning") c.ToPreparing(kAbc, "tiny-1");
    ASSERT_EQ(c.StateOf("tiny-1"), "preparing") << i;
    ReadyAll(2);
    ASSERT_EQ(c.StateOf("tiny-1"), "running") << i;
  }
  c.Error("a", "tiny-1", "no sign of life", 0);
  c.Advance(absl::Seconds(1));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(Run().reason(), HasSubstr("5 times without finishing a new step"));
}

TEST_F(Recovering, ProgressIsAFreshStart) {
  Train();
  for (uint64_t step = 4; step < 12; ++step) {
    c.Error("b", "tiny-1", fmt::format("error before step {}", step));
    ASSERT_EQ(c.StateOf("tiny-1"), "preparing") << step;
    ReadyAll(2);
    for (uint64_t s = 3; s <= step; ++s) c.Steps(kAbc, "tiny-1", s);
  }
}

TEST_F(Recovering, ALossThatIsNotFiniteEndsTheRun) {
  Train();
  v1::StepReport report = c.Report(4, 2, 3);
  report.set_loss(std::numeric_limits<double>::quiet_NaN());
  for (const char* worker : {"a", "b"}) c.Step(worker, "tiny-1", c.Report(4, *worker == 'b', 3));
  c.Step("c", "tiny-1", report);
  c.Advance(absl::Seconds(2));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
}

TEST_F(Recovering, AWorkerLostWhilePlanningIsReplaced) {
  c.Join("d");
  c.Leave("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_EQ(Run().epoch(), 2u);
  EXPECT_EQ(c.Count("d", v1::WorkerCommand::kMeasure), 1);
}

TEST_F(Recovering, AWorkerLostAgainAndAgainWhilePlanningIsWaitedForLongerEachTime) {
  c.Leave("b");
  c.Join(HelloOf("b", "2"));
  ASSERT_EQ(c.StateOf("tiny-1"), "planning");
  for (const int pause_s : {1, 2, 4}) {
    c.Leave("b");
    c.Join(HelloOf("b", std::to_string(pause_s + 2)));
    EXPECT_EQ(c.StateOf("tiny-1"), "queued") << pause_s;
    c.Pass(absl::Seconds(pause_s), kAbc);
    EXPECT_EQ(c.StateOf("tiny-1"), "planning") << pause_s;
  }
}

TEST_F(Recovering, AStopEndsIt) {
  Train();
  KillB();
  c.Tick(event::StopAsked{RequestId(9), "tiny-1", false});
  EXPECT_EQ(c.StateOf("tiny-1"), "stopped");
  EXPECT_EQ(c.views().Workers(c.now)[0].run_id(), "");
}

TEST_F(Recovering, AStopThatWasAskedForIsNotForgotten) {
  Train();
  c.Tick(event::StopAsked{RequestId(9), "tiny-1", false});
  KillB();
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
}

TEST_F(Recovering, ReportsOfTheOldEpochAreDropped) {
  Train();
  KillB();
  c.Join(HelloOf("b", "2"));
  v1::WorkerMessage late = c.About("tiny-1", 1);
  *late.mutable_step() = c.Report(4, 0, 3);
  c.Tick(c.Said("a", late));
  v1::WorkerMessage error = c.About("tiny-1", 1);
  error.mutable_error()->set_message("aborted");
  c.Tick(c.Said("c", error));
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

}  // namespace
}  // namespace longhaul::coordinator
