// A coordinator that was restarted while runs were under way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

enum class Until { kPlanning, kPreparing, kRunning, kFinishing };

// What the store has when the coordinator dies at that point.
std::vector<RunRecord> Stored(Until until) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
  if (until == Until::kPlanning) return c.Stored();
  c.ToPreparing(kAb, "tiny-1");
  if (until == Until::kPreparing) return c.Stored();
  c.Ready("a", "tiny-1");
  c.Ready("b", "tiny-1");
  c.Steps(kAb, "tiny-1", 1);
  c.Shards(kAb, "tiny-1", 1);
  if (until == Until::kRunning) return c.Stored();
  for (uint64_t step = 2; step <= 4; ++step) c.Steps(kAb, "tiny-1", step);
  c.Finished("a", "tiny-1", 4);
  return c.Stored();
}

v1::Hello Busy(const std::string& name, uint32_t stage, uint64_t epoch = 1) {
  return HelloAt(name, "tiny-1", stage, epoch);
}

TEST(Restart, PlanningBeginsAgain) {
  Coordinator c(Stored(Until::kPlanning));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "queued");
  c.Join("a");
  c.Join("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  c.ToRunning(kAb, "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST(Restart, RunningGoesOnWhenTheWorkersAreBack) {
  Coordinator c(Stored(Until::kRunning));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  ASSERT_TRUE(c.last.wake_at.has_value());
  c.Advance(absl::Seconds(5));
  c.Join(Busy("a", 0));
  c.Join(Busy("b", 1));
  EXPECT_EQ(c.LastEvent("note"), "all workers of the run are back");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAssign), 0);
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 0);
  // Steps went by while nobody listened.
  c.Steps(kAb, "tiny-1", 4);
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 4u);
  c.Finished("a", "tiny-1", 4);
  c.Finished("b", "tiny-1", 4);
  EXPECT_EQ(c.StateOf("tiny-1"), "done");
}

TEST(Restart, OneWorkerDoesNotComeBack) {
  Coordinator c(Stored(Until::kRunning));
  c.Tick();
  c.Join(Busy("a", 0));
  for (int i = 0; i < 59; ++i) {
    c.Advance(absl::Seconds(1));
    v1::WorkerMessage alive;
    alive.mutable_heartbeat();
    c.Tick(c.Said("a", alive));
    ASSERT_EQ(c.StateOf("tiny-1"), "running");
  }
  c.Advance(absl::Seconds(1));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              AllOf(HasSubstr("worker b (stage 1) did not come back within 60 s of the "
                              "coordinator's restart"),
                    HasSubstr("goes on from step 1")));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);
}

TEST(Restart, AWorkerThatWasStartedAnewEndsTheRun) {
  Coordinator c(Stored(Until::kRunning));
  c.Tick();
  c.Join(HelloOf("b", "2"));
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker b (stage 1) was lost after step 1: it was "
                                              "started anew"));
}

TEST(Restart, PreparingRepeatsTheAssignment) {
  Coordinator c(Stored(Until::kPreparing));
  c.Tick();
  c.Join(Busy("a", 0));  // it has it; whether it is ready was lost
  c.Join("b");           // it never got it
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAssign), 1);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kAssign), 1);
  c.Ready("a", "tiny-1");
  c.Ready("b", "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST(Restart, FinishedStagesAreKeptAndSaySoAgain) {
  Coordinator c(Stored(Until::kFinishing));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "finishing");
  c.Join(Busy("a", 0));
  c.Join(Busy("b", 1));
  c.Finished("a", "tiny-1", 4);
  EXPECT_EQ(c.StateOf("tiny-1"), "finishing");
  c.Finished("b", "tiny-1", 4);
  EXPECT_EQ(c.StateOf("tiny-1"), "done");
}

TEST(Restart, AStageThatIsGoneHasNotFinished) {
  Coordinator c(Stored(Until::kFinishing));
  c.Tick();
  c.Join(Busy("b", 1));
  c.Join("a");
  c.Finished("b", "tiny-1", 4);
  c.Error("a", "tiny-1", "no space left");
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker a (stage 0) failed"));
}

TEST(Restart, APromisedStopIsRepeated) {
  Coordinator before(Stored(Until::kRunning));
  before.Tick();
  before.Join(Busy("b", 1));
  before.Tick(event::StopAsked{RequestId(2), "tiny-1", false});  // a does not hear of it
  EXPECT_THAT(before.LastReply<command::Reply<v1::StopReply>>()->reply->message(),
              HasSubstr("ends after"));
  Coordinator c(before.Stored());
  c.Tick();
  c.Join(Busy("b", 1));
  c.Join(Busy("a", 0));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kStop), 1);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kStop), 0);
}

TEST(Restart, StepsOfTheTimeAwayAreAllOnRecord) {
  RunSpec spec = SmallSpec("tiny", 2);
  spec.train.steps = 400;
  Coordinator before;
  before.Join("a");
  before.Join("b");
  before.Tick(SubmitOf(spec, "tiny-1"));
  before.ToRunning(kAb, "tiny-1");
  Coordinator c(before.Stored());
  c.Tick();
  // One stage tells all that it has kept before the other is back.
  c.Join(Busy("a", 0));
  for (uint64_t step = 1; step <= 300; ++step) c.Step("a", "tiny-1", c.Report(step, 0, 2));
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 0u);
  c.Join(Busy("b", 1));
  for (uint64_t step = 1; step <= 300; ++step) c.Step("b", "tiny-1", c.Report(step, 1, 2));
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 300u);
  EXPECT_EQ(c.steps["tiny-1"].size(), 300u);
}

TEST(Restart, ValidationThatIsToldAgainIsNoNews) {
  Coordinator c(Stored(Until::kRunning));
  c.Tick();
  c.Join(Busy("a", 0));
  c.Join(Busy("b", 1));
  c.Steps(kAb, "tiny-1", 2);
  for (const uint64_t step : {1, 2}) {
    v1::WorkerMessage message = c.About("tiny-1");
    message.mutable_validation()->set_step(step);
    message.mutable_validation()->set_loss(4);
    c.Tick(c.Said("b", message));
    EXPECT_EQ(c.LastEvent("loss").empty(), step == 1);
  }
}

TEST(Restart, APeerThatIsNotBackIsNotCalledConnected) {
  Coordinator c(Stored(Until::kRunning));
  c.Tick();
  c.Join("a");
  c.Error("a", "tiny-1", "no sign of life", 0);
  c.Advance(absl::Seconds(1));
  c.Tick();
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              AllOf(HasSubstr("worker a (stage 0) lost its link to worker b (stage 1)"),
                    HasSubstr("that worker is not connected")));
}

TEST(Restart, OtherRunsDoNotTakeTheWorkersThatComeBack) {
  std::vector<RunRecord> stored = Stored(Until::kRunning);
  Coordinator c(stored);
  c.Tick(SubmitOf(SmallSpec("other", 1), "other-1"));
  c.Join(Busy("a", 0));
  EXPECT_EQ(c.StateOf("other-1"), "queued");
  c.Join("z");
  EXPECT_EQ(c.StateOf("other-1"), "planning");
  EXPECT_EQ(c.views().RunOf("other-1")->stages(0).worker_name(), "z");
}

TEST(Restart, AWorkerOnAnotherEpochIsFreed) {
  Coordinator c(Stored(Until::kPreparing));
  c.Tick();
  c.Join(Busy("a", 0, 7));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kAbort)->epoch(), 7u);
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAssign), 1);
}

TEST(Restart, ARecordWithoutAPlanFails) {
  std::vector<RunRecord> stored = Stored(Until::kRunning);
  stored[0].plan.reset();
  Coordinator c(stored);
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("no usable plan"));
}

TEST(Restart, RunsAreInTheOrderOfTheStoreWhateverTheClockSaid) {
  std::vector<RunRecord> stored;
  for (const auto& [name, unix_ms] : {std::pair{"first", 9'000}, {"second", 5}, {"third", 7'000}}) {
    RunRecord& record = stored.emplace_back();
    record.id = RunId(std::string(name) + "-1");
    record.spec = SmallSpec(name, 1);
    record.submitted_unix_ms = unix_ms;
  }
  Coordinator c(stored);
  c.Join("a");
  EXPECT_EQ(c.StateOf("first-1"), "planning");
  std::vector<std::string> names;
  for (const v1::RunStatus& run : c.views().Runs()) names.push_back(run.name());
  EXPECT_EQ(names, (std::vector<std::string>{"third", "second", "first"}));
}

TEST(Restart, ARunThatCannotBeReadIsSaid) {
  State state({},
              {.runs = Stored(Until::kRunning),
               .unreadable = {{RunId("bad-1"), "its plan cannot be read"}}},
              1, MonoTime());
  std::string said;
  for (const Write& write : state.Tick({}, MonoTime(), 1).writes) {
    if (const auto* event = std::get_if<write::LogEvent>(&write)) said += event->event.text();
  }
  EXPECT_THAT(said, HasSubstr("run bad-1 is set aside, its row in the store stays as it is: its "
                              "plan cannot be read"));
  EXPECT_EQ(state.views().Runs().size(), 1u);
}

TEST(Restart, WhatWasRecoveringGoesOnRecovering) {
  std::vector<RunRecord> stored = Stored(Until::kRunning);
  stored[0].state = RunState::kRecovering;
  stored[0].reason = "worker b (stage 1) was lost";
  Coordinator c(stored);
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "recovering");
  c.Join("a");
  c.Join("b");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.views().RunOf("tiny-1")->epoch(), 2u);
}

TEST(Restart, EndedRunsStayAsTheyAre) {
  std::vector<RunRecord> stored = Stored(Until::kRunning);
  stored[0].state = RunState::kStopped;
  stored[0].ended_unix_ms = 5;
  Coordinator c(stored);
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "stopped");
  EXPECT_TRUE(c.last.writes.empty());
}

}  // namespace
}  // namespace longhaul::coordinator
