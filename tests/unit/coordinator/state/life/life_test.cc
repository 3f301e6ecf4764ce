// The happy path, stopping, and each way to fail with its sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "coordinator/state/workers/secrets.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Life : public ::testing::Test {
 protected:
  void SetUp() override { Submit(SmallSpec("tiny", 2)); }
  void Submit(const RunSpec& spec) {
    c.Join("b");  // pipeline order is by name, not by arrival
    c.Join("a");
    c.Tick(SubmitOf(spec, "tiny-1"));
  }
  // Step 2 is finished and has a checkpoint.
  void RunToCheckpoint() {
    c.ToRunning(kAb, "tiny-1");
    c.Steps(kAb, "tiny-1", 1);
    c.Steps(kAb, "tiny-1", 2);
    c.Shards(kAb, "tiny-1", 2);
  }
  Coordinator c;
};

TEST_F(Life, HappyPath) {
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  const auto* reply = c.LastReply<command::Reply<v1::SubmitReply>>();
  ASSERT_NE(reply, nullptr);
  ASSERT_TRUE(reply->reply.ok());
  EXPECT_EQ(reply->reply->run_id(), "tiny-1");
  EXPECT_EQ(reply->reply->notes(0), "planning on a, b");
  ASSERT_NE(c.LastReply<command::PrepareData>(), nullptr);
  EXPECT_EQ(c.LastReply<command::PrepareData>()->files.size(), 1u);
  for (const std::string& worker : kAb) {
    ASSERT_EQ(c.Count(worker, v1::WorkerCommand::kMeasure), 1);
    EXPECT_EQ(c.Last(worker, v1::WorkerCommand::kMeasure)->measure().vocabulary(), 256u);
  }

  c.ToPreparing(kAb, "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  ASSERT_TRUE(c.records["tiny-1"].plan.has_value());
  EXPECT_EQ(c.records["tiny-1"].epoch, Epoch(1));
  ASSERT_EQ(c.Count("b", v1::WorkerCommand::kAssign), 1);
  const v1::Assign assign = c.Last("b", v1::WorkerCommand::kAssign)->assign();
  EXPECT_EQ(assign.cell().stage(), 1u);
  // One for this assignment, made of the run's; the other stage has the same.
  const std::string& hash = assign.assignment().hash();
  EXPECT_EQ(assign.link_secret(), LinksSecret("secret of tiny-1", hash));
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kAssign)->assign().link_secret(), assign.link_secret());
  // Both have the same secret for their edge, which follows from no other.
  ASSERT_EQ(assign.edge_secrets_size(), 1);
  EXPECT_EQ(assign.edge_secrets().at(0), EdgeSecret("secret of tiny-1", hash, EdgeId(0)));
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kAssign)->assign().edge_secrets().at(0),
            assign.edge_secrets().at(0));
  EXPECT_EQ(assign.assignment().cells(1).worker_name(), "b");
  EXPECT_EQ(assign.resume_files_size(), 0);

  c.Ready("a", "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kStart), 0);
  c.Ready("b", "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kStart), 1);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kStart), 1);
  EXPECT_NE(c.records["tiny-1"].started_unix_ms, 0);

  for (uint64_t step = 1; step <= 4; ++step) {
    c.Steps(kAb, "tiny-1", step);
    EXPECT_EQ(c.views().RunOf("tiny-1")->step(), step);
    EXPECT_NEAR(c.steps["tiny-1"][step].loss(), 5.0 - 0.1 * static_cast<double>(step), 1e-9);
    if (step % 2 == 0) c.Shards(kAb, "tiny-1", step);
  }
  EXPECT_EQ(c.LastEvent("checkpoint"), "checkpoint of step 4 is committed");
  c.Finished("a", "tiny-1", 4);
  EXPECT_EQ(c.StateOf("tiny-1"), "finishing");
  c.Finished("b", "tiny-1", 4);
  EXPECT_EQ(c.StateOf("tiny-1"), "done");
  EXPECT_EQ(c.records["tiny-1"].state, RunState::kDone);
  EXPECT_EQ(c.records["tiny-1"].checkpoints.size(), 2u);
  // Only now may a stage close its links: no neighbour needs them any more.
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);
  EXPECT_TRUE(c.Last("a", v1::WorkerCommand::kAbort)->abort().finished());
  for (const v1::WorkerStatus& worker : c.views().Workers(c.now)) EXPECT_EQ(worker.run_id(), "");
}

TEST_F(Life, EveryEventTwiceIsEveryEventOnce) {
  Coordinator d;
  d.twice = true;
  d.Join("a");
  d.Join("b");
  d.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
  d.ToRunning(kAb, "tiny-1");
  for (uint64_t step = 1; step <= 4; ++step) {
    d.Steps(kAb, "tiny-1", step);
    d.Shards(kAb, "tiny-1", step);
  }
  EXPECT_EQ(d.Count("a", v1::WorkerCommand::kMeasure), 1);
  EXPECT_EQ(d.Count("a", v1::WorkerCommand::kAssign), 1);
  EXPECT_EQ(d.Count("a", v1::WorkerCommand::kStart), 1);
  EXPECT_EQ(d.Count("a", v1::WorkerCommand::kDropCheckpoint), 2);
  d.Finished("a", "tiny-1", 4);
  d.Finished("b", "tiny-1", 4);
  EXPECT_EQ(d.StateOf("tiny-1"), "done");
  EXPECT_EQ(d.steps["tiny-1"].size(), 4u);
  EXPECT_EQ(d.records.size(), 1u);
}

TEST_F(Life, StopFinishesTheStep) {
  RunToCheckpoint();
  c.Tick(event::StopAsked{RequestId(2), "tiny", false});
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kStop), 1);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kStop), 0);
  EXPECT_THAT(c.LastReply<command::Reply<v1::StopReply>>()->reply->message(),
              HasSubstr("step under way (3)"));
  EXPECT_EQ(c.StateOf("tiny-1"), "finishing");
  EXPECT_EQ(c.records["tiny-1"].state, RunState::kFinishing);  // it was promised
  c.Steps(kAb, "tiny-1", 3);
  c.Finished("a", "tiny-1", 3, true);
  c.Finished("b", "tiny-1", 3, true);
  EXPECT_EQ(c.StateOf("tiny-1"), "stopped");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("goes on from step 2"));
  // The checkpoint of the last step is reported late and still counts.
  c.Shards(kAb, "tiny-1", 3);
  EXPECT_EQ(c.records["tiny-1"].checkpoints.back().step(), 3u);
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("goes on from step 3"));
}

TEST_F(Life, StopNowAborts) {
  RunToCheckpoint();
  c.Tick(event::StopAsked{RequestId(2), "tiny-1", true});
  EXPECT_EQ(c.StateOf("tiny-1"), "stopped");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kAbort), 1);
  EXPECT_FALSE(c.Last("b", v1::WorkerCommand::kAbort)->abort().finished());
  EXPECT_EQ(
      c.ReasonOf("tiny-1"),
      "stopped at once by request after step 2; longhaul submit run.yaml --resume goes on from "
      "step 2");
  c.Tick(event::StopAsked{RequestId(3), "tiny-1", true});
  EXPECT_THAT(c.LastReply<command::Reply<v1::StopReply>>()->reply->message(),
              HasSubstr("ended already"));
}

TEST_F(Life, StopBeforeItRunsEndsAtOnce) {
  c.Tick(event::StopAsked{RequestId(2), "tiny-1", false});
  EXPECT_EQ(c.StateOf("tiny-1"), "stopped");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);
  c.Tick(event::StopAsked{RequestId(3), "nobody", false});
  EXPECT_EQ(c.LastReply<command::Reply<v1::StopReply>>()->reply.status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(Life, ADeadWorkerFailsTheRun) {
  RunToCheckpoint();
  c.Die("b", "tiny-1", {{"a", 0}}, "connection closed");
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_EQ(
      c.ReasonOf("tiny-1"),
      "worker b (stage 1) was lost after step 2: connection closed, and its neighbours miss it "
      "too; longhaul submit run.yaml --resume goes on from step 2");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);
  EXPECT_EQ(c.views().RunOf("tiny-1")->workers_lost(0), "b");
}

TEST_F(Life, LossIsBlamedOnTheLostWorkerNotOnItsNeighbour) {
  RunToCheckpoint();
  c.Error("a", "tiny-1", "no answer from b:1", 0);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  ASSERT_TRUE(c.last.wake_at.has_value());
  EXPECT_LE(*c.last.wake_at, c.now + absl::Seconds(1));
  c.Advance(absl::Milliseconds(500));
  c.Tick(event::WorkerLeft{c.sessions["b"], "connection closed"});
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker b (stage 1) was lost"));
}

TEST_F(Life, LossWithoutACauseIsBlamedOnTheLink) {
  RunToCheckpoint();
  c.Error("a", "tiny-1", "no answer from b:1", 0);
  c.Advance(absl::Seconds(1));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(
      c.ReasonOf("tiny-1"),
      HasSubstr("worker a (stage 0) lost its link to worker b (stage 1) at step 2: no answer "
                "from b:1; both are still connected"));
}

// The neighbour of the neighbour may be heard first.
TEST(LifeOfFour, LossIsBlamedOnTheFarthestOfThoseThatAreMissed) {
  const std::vector<std::string> workers = {"a", "b", "c", "d"};
  Coordinator c;
  for (const std::string& worker : workers) c.Join(worker);
  c.Tick(SubmitOf(SmallSpec("tiny", 4), "tiny-1"));
  c.ToRunning(workers, "tiny-1");
  c.Steps(workers, "tiny-1", 1);
  c.Error("d", "tiny-1", "the peer closed the link", 2);
  c.Error("c", "tiny-1", "no answer from b:1", 1);
  c.Error("a", "tiny-1", "no answer from b:1", 0);
  c.Advance(absl::Seconds(1));
  c.Tick();
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("worker c (stage 2) lost its link to worker b (stage 1)"));
}

TEST_F(Life, WhoIsMissedByTheOneThatItMissesChangesNothing) {
  RunToCheckpoint();
  c.Error("a", "tiny-1", "no answer from b:1", 0);
  c.Error("b", "tiny-1", "no answer from a:1", 0);
  c.Advance(absl::Seconds(1));
  c.Tick();
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("worker a (stage 0) lost its link to worker b (stage 1)"));
}

TEST_F(Life, ARealErrorBeatsALostPeer) {
  RunToCheckpoint();
  c.Error("a", "tiny-1", "no answer", 0);
  c.Error("b", "tiny-1", "out of memory");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("worker b (stage 1) failed at step 2: out of memory"));
}

TEST_F(Life, NoCheckpointIsSaidSo) {
  c.ToRunning(kAb, "tiny-1");
  c.Error("b", "tiny-1", "out of memory");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("no checkpoint was committed, so longhaul submit "
                                              "run.yaml --resume starts from scratch"));
}

TEST_F(Life, NonFiniteLossNamesStepAndFirstStage) {
  RunToCheckpoint();
  v1::StepReport loss = c.Report(3, 1, 2);
  loss.set_loss(std::numeric_limits<double>::quiet_NaN());
  c.Step("b", "tiny-1", loss);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");  // the other stage's report says where it began
  v1::StepReport first = c.Report(3, 0, 2);
  first.set_first_nonfinite(true);
  c.Step("a", "tiny-1", first);
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_EQ(c.ReasonOf("tiny-1"),
            "the loss became nan at step 3, where a value that is not finite appeared first in "
            "worker a (stage 0); longhaul submit run.yaml --resume goes on from step 2");
  EXPECT_FALSE(c.steps["tiny-1"].contains(3));
}

TEST_F(Life, NonFiniteLossDoesNotWaitForEver) {
  RunToCheckpoint();
  v1::StepReport loss = c.Report(3, 1, 2);
  loss.set_loss(std::numeric_limits<double>::infinity());
  c.Step("b", "tiny-1", loss);
  c.Advance(absl::Seconds(1));
  c.Tick();
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("the loss became inf at step 3;"));
}

TEST_F(Life, NonFiniteNormFails) {
  RunToCheckpoint();
  v1::StepReport norm = c.Report(3, 0, 2);
  norm.set_gradient_norm(std::numeric_limits<double>::quiet_NaN());
  c.Step("a", "tiny-1", norm);
  c.Step("b", "tiny-1", c.Report(3, 1, 2));
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("the gradient norm became nan at step 3"));
}

v1::StepReport NotFinite(v1::StepReport report) {
  if (report.has_loss()) report.set_loss(std::numeric_limits<double>::quiet_NaN());
  if (report.has_norm()) report.set_gradient_norm(std::numeric_limits<double>::infinity());
  return report;
}
v1::StepReport Skipped(v1::StepReport report) {
  report = NotFinite(std::move(report));
  report.set_skipped(true);
  return report;
}

// The stages say which steps they have skipped; a step that they have not ends the run as ever.
class LifeWithSkips : public Life {
 protected:
  void SetUp() override {
    RunSpec spec = SmallSpec("tiny", 2);
    spec.train.on_nonfinite = OnNonfinite::kSkip;
    Submit(spec);
  }
};

TEST_F(LifeWithSkips, ASkippedStepIsToldAndTheRunGoesOn) {
  RunToCheckpoint();
  v1::StepReport first = Skipped(c.Report(3, 0, 2));
  first.set_first_nonfinite(true);
  c.Step("b", "tiny-1", Skipped(c.Report(3, 1, 2)));
  c.Step("a", "tiny-1", first);
  c.Advance(absl::Seconds(2));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.LastEvent("loss"),
            "step 3 is skipped, all stages keep their parameters: its gradient norm is not finite; "
            "such a value appeared in worker a (stage 0)");
  ASSERT_TRUE(c.steps["tiny-1"].contains(3));
  c.Step("b", "tiny-1", NotFinite(c.Report(4, 1, 2)));
  c.Step("a", "tiny-1", NotFinite(c.Report(4, 0, 2)));
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(
      c.ReasonOf("tiny-1"),
      HasSubstr("the loss became nan at step 4; no more than 10 steps in a row are skipped"));
}

TEST_F(Life, NobodySkipsWhereTheRunFileDoesNotSaySo) {
  RunToCheckpoint();
  c.Step("b", "tiny-1", Skipped(c.Report(3, 1, 2)));
  c.Step("a", "tiny-1", Skipped(c.Report(3, 0, 2)));
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
}

TEST_F(Life, PlanningFailures) {
  c.Tick(event::DataPrepared{RunId("tiny-1"), absl::DataLossError("corpus.txt is gone")});
  EXPECT_EQ(c.ReasonOf("tiny-1"), "the data could not be prepared: corpus.txt is gone");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 1);

  c.Tick(SubmitOf(SmallSpec("two", 2), "two-1"));
  c.Error("a", "two-1", "no threads");
  EXPECT_EQ(c.ReasonOf("two-1"), "worker a could not time its layers: no threads");

  c.Tick(SubmitOf(SmallSpec("three", 2), "three-1"));
  c.Tick(event::WorkerLeft{c.sessions["b"], "connection closed"});
  EXPECT_EQ(c.ReasonOf("three-1"),
            "worker b was lost while its layers were timed: connection closed");
}

TEST_F(Life, TooLittleDataFails) {
  DataSet data = SmallData();
  data.tokens = 10;
  data.validation_tokens = 1;
  c.Tick(event::DataPrepared{RunId("tiny-1"), data});
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
}

TEST_F(Life, AStageThatDoesNotFitFails) {
  Coordinator d;
  v1::Hello hello = HelloOf("a");
  hello.mutable_devices(0)->set_memory_bytes(1000);
  d.Join(hello);
  d.Tick(SubmitOf(SmallSpec("tiny", 1), "tiny-1"));
  d.ToPreparing({"a"}, "tiny-1");
  EXPECT_THAT(d.ReasonOf("tiny-1"),
              AllOf(HasSubstr("needs"), HasSubstr("worker a has"), HasSubstr("(1000 bytes)")));
}

TEST_F(Life, AGpusHostThatDoesNotHoldASnapshotFails) {
  Coordinator d;
  v1::Hello hello = HelloOf("a");
  hello.mutable_devices(0)->set_kind("cuda");
  hello.mutable_devices(0)->set_host_memory_bytes(1000);
  d.Join(hello);
  d.Tick(SubmitOf(SmallSpec("tiny", 1), "tiny-1"));
  d.ToPreparing({"a"}, "tiny-1");
  EXPECT_THAT(d.ReasonOf("tiny-1"), AllOf(HasSubstr("its host's memory"),
                                          HasSubstr("worker a has 1 KB (1000 bytes) beside")));
}

TEST_F(Life, ImpossibleLayerTimesFail) {
  v1::WorkerMessage message = c.About("tiny-1");
  message.mutable_layer_times()->set_block_forward(std::nan(""));
  c.Tick(c.Said("a", message));
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("layer times that cannot be"));
}

TEST_F(Life, LateLayerTimesFail) {
  c.Times("a", "tiny-1", 1);
  for (int i = 0; i < 120; ++i) {
    c.Advance(absl::Seconds(1));
    for (const std::string& name : kAb) {
      v1::WorkerMessage alive;
      alive.mutable_heartbeat();
      c.Tick(c.Said(name, alive));
    }
  }
  EXPECT_THAT(c.ReasonOf("tiny-1"), AllOf(HasSubstr("have not come from b"), Not(HasSubstr("a,"))));
}

TEST_F(Life, AStageAtTheWrongStepFails) {
  c.ToPreparing(kAb, "tiny-1");
  c.Ready("a", "tiny-1", 7);
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("ready to begin after step 7 where the plan says"));
}

TEST_F(Life, PreparationErrorFails) {
  c.ToPreparing(kAb, "tiny-1");
  c.Error("b", "tiny-1", "cannot reach a at a:1");
  EXPECT_EQ(c.ReasonOf("tiny-1"), "worker b (stage 1) failed: cannot reach a at a:1");
}

TEST_F(Life, AnEarlyEndFails) {
  RunToCheckpoint();
  c.Finished("a", "tiny-1", 3);
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker a (stage 0) ended at step 3 of 4"));
}

TEST_F(Life, AFinishedStageMayLeave) {
  c.ToRunning(kAb, "tiny-1");
  for (uint64_t step = 1; step <= 4; ++step) c.Steps(kAb, "tiny-1", step);
  c.Finished("b", "tiny-1", 4);
  c.Tick(event::WorkerLeft{c.sessions["b"], "connection closed"});
  EXPECT_EQ(c.StateOf("tiny-1"), "finishing");
  c.Finished("a", "tiny-1", 4);
  EXPECT_EQ(c.StateOf("tiny-1"), "done");
}

}  // namespace
}  // namespace longhaul::coordinator
