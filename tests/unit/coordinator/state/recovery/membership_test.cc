// Runs whose number of replicas changes while they train.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

const std::string kRun = "tiny-1";

class Membership : public ::testing::Test {
 protected:
  void Begin(uint32_t replicas, LostReplica lost) {
    for (uint32_t i = 0; i < 2 * replicas; ++i) {
      workers_.push_back(std::string(1, static_cast<char>('a' + i)));
      c.Join(workers_.back());
    }
    RunSpec spec = SmallSpec("tiny", 2);
    spec.replicas.count = replicas;
    spec.train.steps = 100;
    spec.recovery.attempts = 5;
    spec.recovery.replicas = lost;
    spec.checkpoint.keep_copy = true;  // at the coordinator: whoever dies takes no file with it
    c.Tick(SubmitOf(spec, kRun));
    c.ToRunning(workers_, kRun);
    c.Forget();
  }

  const RunRecord& record() const { return c.records.at(kRun); }
  const Assignment& assignment() const { return record().plan->assignment; }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Cell& cell : assignment().cells) names.push_back(cell.worker_name);
    return names;
  }
  std::vector<std::string> Spares() const {
    const auto status = c.views().RunOf(kRun);
    return {status->spares().begin(), status->spares().end()};
  }

  // Every stage of the present epoch.
  template <class Say>
  void All(const Say& say) {
    const Assignment present = assignment();
    for (const Cell& cell : present.cells) say(cell);
  }
  void Step(uint64_t step) {
    All([&](const Cell& cell) {
      c.Step(cell.worker_name, kRun, c.Report(step, cell.id.stage, 2));
    });
  }
  void Steps(uint64_t from, uint64_t to) {
    for (uint64_t step = from; step <= to; ++step) Step(step);
  }
  // And the coordinator gets its copies.
  void Checkpoint(uint64_t step) {
    const bool of_replicas = assignment().HasReplicas();
    All([&](const Cell& cell) {
      v1::WorkerMessage message = c.About(kRun);
      v1::ShardReport& shard = *message.mutable_shard();
      shard.set_step(step);
      v1::CheckpointFile& file = *shard.add_files();
      file.set_bytes(10);
      file.set_sha256(fmt::format("{:064x}", 1000 * step + 10 * cell.id.replica + cell.id.stage));
      file.set_name(fmt::format("stage-{}.optim.safetensors", cell.id.stage));
      if (of_replicas) {
        file.set_replica(cell.id.replica);
        file.set_name(
            fmt::format("stage-{}.replica-{}.optim.safetensors", cell.id.stage, cell.id.replica));
      }
      c.Tick(c.Said(cell.worker_name, message));
    });
    All([&](const Cell& cell) { c.Checked(cell.worker_name); });
  }
  // Its process ends; its neighbours see that.
  void Die(const std::string& worker) {
    const Assignment present = assignment();
    std::vector<std::pair<std::string, uint32_t>> edges;
    for (const Edge& edge : present.edges) {
      const std::string& from = present.Find(edge.from)->worker_name;
      const std::string& to = present.Find(edge.to)->worker_name;
      if (from == worker) edges.emplace_back(to, edge.id.value());
      if (to == worker) edges.emplace_back(from, edge.id.value());
    }
    c.Die(worker, kRun, edges);
  }
  void ReadyAll() {
    const uint64_t step = assignment().start_step;
    All([&](const Cell& cell) { c.Ready(cell.worker_name, kRun, step); });
    ASSERT_EQ(c.StateOf(kRun), "running");
  }
  // The stages stop after `step`, as they were asked to.
  void StopAll(uint64_t step) {
    ASSERT_EQ(c.StateOf(kRun), "finishing");
    Steps(record().step + 1, step);
    Checkpoint(step);
    All([&](const Cell& cell) { c.Finished(cell.worker_name, kRun, step, /*stopped=*/true); });
  }
  std::string Ask(uint32_t replicas) {
    c.Tick(event::ReplicasAsked{RequestId(77), kRun, replicas});
    const auto& reply = c.LastReply<command::Reply<v1::ReplicasReply>>()->reply;
    return reply.ok() ? reply->message() : std::string(Message(reply.status()));
  }

  std::vector<std::string> workers_;
  Coordinator c;
};

TEST_F(Membership, ALostReplicaIsGoneOnWithout) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  Steps(5, 7);
  Die("d");
  ASSERT_EQ(c.StateOf(kRun), "preparing") << c.ReasonOf(kRun);
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
  EXPECT_TRUE(CheckAssignment(assignment()).ok());
  EXPECT_EQ(assignment().start_step, 4u);
  // Four steps of two replicas with two microbatches; those of steps 5 to 7 are drawn again.
  EXPECT_EQ(assignment().microbatches_before, 16u);
  EXPECT_THAT(assignment().run_yaml, Not(HasSubstr("replicas: 2")));
  EXPECT_THAT(Spares(), ElementsAre("c")) << "what is left of the replica stays the run's";
  EXPECT_THAT(c.LastEvent("replicas"),
              HasSubstr("1 of 2 replicas from step 5 on, 2 before (worker d (stage 1 of replica 1) "
                        "away): a step reads 2 microbatches instead of 4, from microbatch 16 on"));
  // Both parts of the optimizer's state go to the replica that is left.
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kAssign)->assign().resume_files_size(), 2);
  ReadyAll();
  Steps(5, 6);
  EXPECT_EQ(c.steps[kRun].at(5).replicas(), 1u);
  EXPECT_EQ(c.steps[kRun].at(5).first_microbatch(), 16u);
  EXPECT_EQ(c.steps[kRun].at(6).first_microbatch(), 18u);
  const auto status = c.views().RunOf(kRun);
  EXPECT_EQ(status->replicas(), 1u);
  EXPECT_EQ(status->replicas_wanted(), 2u);
  EXPECT_THAT(status->replicas_reason(),
              HasSubstr("another one needs 2 free workers, 1 is reserved"));
}

TEST_F(Membership, WhoIsBackIsTakenInBetweenSteps) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  Die("d");
  ReadyAll();
  Steps(5, 8);
  c.Join(HelloOf("d", "2"));
  EXPECT_THAT(Spares(), ElementsAre("c", "d"));
  Step(9);
  EXPECT_EQ(c.StateOf(kRun), "running") << "until it has timed its layers, others train";
  c.Forget();
  for (const std::string worker : {"c", "d"}) c.Times(worker, kRun, 2);
  Step(10);
  ASSERT_EQ(c.StateOf(kRun), "finishing");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kStop), 1);
  StopAll(11);
  ASSERT_EQ(c.StateOf(kRun), "preparing") << c.ReasonOf(kRun);
  EXPECT_THAT(Names(), ElementsAre("a", "b", "c", "d"));
  EXPECT_TRUE(CheckAssignment(assignment()).ok());
  EXPECT_EQ(assignment().start_step, 11u);
  EXPECT_EQ(assignment().microbatches_before, 4u * 4 + 7 * 2);
  EXPECT_FALSE(record().resize_asked);
  EXPECT_THAT(Spares(), IsEmpty());
  ReadyAll();
  Step(12);
  EXPECT_EQ(c.steps[kRun].at(12).replicas(), 2u);
  EXPECT_EQ(c.steps[kRun].at(12).first_microbatch(), 30u);
}

// It has forgotten what anybody timed, of the worker that lost its stage, too.
TEST_F(Membership, ARestartedCoordinatorAsksAllSparesForTheirTimes) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  Die("d");
  ReadyAll();
  c.Restart();
  c.Forget();
  for (uint32_t place = 0; place < 2; ++place) c.Join(HelloAt(workers_[place], kRun, place, 2));
  c.Join(HelloOf("c", "1"));
  c.Join(HelloOf("d", "2"));
  ASSERT_THAT(Spares(), ElementsAre("c", "d"));
  Steps(5, 6);
  for (const std::string worker : {"c", "d"}) {
    EXPECT_EQ(c.Count(worker, v1::WorkerCommand::kMeasure), 1) << worker;
    c.Times(worker, kRun, 2);
  }
  Step(7);
  EXPECT_EQ(c.StateOf(kRun), "finishing");
}

// Restarted while they stop: who lost its stage then is reserved already.
TEST_F(Membership, WhoLostItsStageIsAskedForItsTimes) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  c.Restart();
  for (uint32_t place = 0; place < 4; ++place) {
    v1::Hello hello = HelloAt(workers_[place], kRun, place % 2);
    hello.mutable_cell()->set_replica(place / 2);
    c.Join(hello);
  }
  Die("d");
  ASSERT_THAT(Spares(), ElementsAre("c"));
  ReadyAll();
  EXPECT_EQ(c.Count("c", v1::WorkerCommand::kMeasure), 1);
  Steps(5, 6);
  EXPECT_EQ(c.Count("c", v1::WorkerCommand::kMeasure), 1) << "once";
  c.Join(HelloOf("d", "2"));
  c.Times("d", kRun, 2);
  EXPECT_EQ(c.StateOf(kRun), "running");
  c.Times("c", kRun, 2);
  Step(7);
  EXPECT_EQ(c.StateOf(kRun), "finishing");
}

TEST_F(Membership, ExactWaits) {
  Begin(2, LostReplica::kExact);
  Steps(1, 4);
  Checkpoint(4);
  Die("d");
  EXPECT_EQ(c.StateOf(kRun), "recovering");
  c.Pass(absl::Seconds(20), {"a", "b", "c"});
  EXPECT_EQ(c.StateOf(kRun), "recovering");
  c.Join(HelloOf("d", "2"));
  EXPECT_EQ(c.StateOf(kRun), "preparing");
  EXPECT_THAT(Names(), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(c.LastEvent("replicas"), "");
}

TEST_F(Membership, WhatIsLeftOfTwoReplicasIsOne) {
  Begin(3, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  c.Leave("c");  // stage 0 of replica 1
  Die("f");      // stage 1 of replica 2
  ASSERT_EQ(c.StateOf(kRun), "preparing") << c.ReasonOf(kRun);
  EXPECT_EQ(Names().size(), 4u);
  EXPECT_THAT(Names(), UnorderedElementsAre("a", "b", "e", "d"));
  EXPECT_TRUE(CheckAssignment(assignment()).ok());
  ReadyAll();
}

// Both have lost stage 1.
TEST_F(Membership, WhoIsLeftTakesAnyStage) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  c.Leave("b");
  Die("d");
  ASSERT_EQ(c.StateOf(kRun), "preparing") << c.ReasonOf(kRun);
  EXPECT_THAT(Names(), UnorderedElementsAre("a", "c"));
  ReadyAll();
}

TEST_F(Membership, WithoutAWholeReplicaItWaits) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  c.Leave("c");
  c.Leave("d");
  Die("b");
  EXPECT_EQ(c.StateOf(kRun), "recovering");
  c.Join(HelloOf("d", "2"));
  ASSERT_EQ(c.StateOf(kRun), "preparing") << c.ReasonOf(kRun);
  EXPECT_THAT(Names(), UnorderedElementsAre("a", "d"));
  ReadyAll();
}

// Only the lost worker has a part of the state.
TEST_F(Membership, WithoutASetItWaits) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  RunRecord stored = record();
  for (auto& manifest : stored.checkpoints) {
    for (auto& file : *manifest.mutable_files()) {
      while (file.holders_size() > 1) file.mutable_holders()->RemoveLast();
    }
  }
  Coordinator other({stored});
  for (uint32_t place = 0; place < 3; ++place) {
    v1::Hello hello = HelloAt(workers_[place], kRun, place % 2);
    hello.mutable_cell()->set_replica(place / 2);
    other.Join(hello);
  }
  for (int second = 0; second < 62; ++second) other.Pass(absl::Seconds(1), {"a", "b", "c"});
  EXPECT_EQ(other.StateOf(kRun), "recovering");
  EXPECT_THAT(other.LastEvent("state"), HasSubstr("waits for worker d"));
}

TEST_F(Membership, AUserShrinksItAndLetsItGrow) {
  Begin(2, LostReplica::kExact);
  Steps(1, 3);
  EXPECT_THAT(Ask(1), HasSubstr("goes on with 1 replica instead of 2 after the step under way"));
  StopAll(4);
  ASSERT_EQ(c.StateOf(kRun), "preparing");
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
  EXPECT_THAT(Spares(), IsEmpty()) << "the others are free";
  ReadyAll();
  Steps(5, 6);
  EXPECT_EQ(c.StateOf(kRun), "running");
  EXPECT_THAT(Ask(2), HasSubstr("when enough workers are free: each takes 2"));
  for (const std::string worker : {"c", "d"}) c.Times(worker, kRun, 2);
  Step(7);
  StopAll(8);
  ASSERT_EQ(c.StateOf(kRun), "preparing");
  EXPECT_THAT(Names(), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(assignment().microbatches_before, 4u * 4 + 4 * 2);
  ReadyAll();
  EXPECT_THAT(Ask(2), HasSubstr("trains with 2 replicas"));
  EXPECT_THAT(Ask(0), HasSubstr("pipeline.replicas"));
  EXPECT_THAT(Ask(1000), HasSubstr("pipeline.replicas"));
}

TEST_F(Membership, AStopComesBeforeAChange) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 3);
  Ask(1);
  ASSERT_EQ(c.StateOf(kRun), "finishing");
  c.Tick(event::StopAsked{RequestId(9), kRun, false});
  EXPECT_THAT(c.LastReply<command::Reply<v1::StopReply>>()->reply->message(),
              HasSubstr("ends after"));
  StopAll(4);
  EXPECT_EQ(c.StateOf(kRun), "stopped");
}

// Whoever is lost while the stages stop is what the run recovers from.
TEST_F(Membership, ALossComesBeforeAChange) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  Ask(1);
  ASSERT_EQ(c.StateOf(kRun), "finishing");
  Die("a");
  ASSERT_EQ(c.StateOf(kRun), "preparing") << c.ReasonOf(kRun);
  EXPECT_EQ(Names().size(), 2u);
  EXPECT_FALSE(record().resize_asked);
  EXPECT_EQ(assignment().start_step, 4u);
}

TEST_F(Membership, ARestartedCoordinatorRepeatsTheWord) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 3);
  Ask(1);
  ASSERT_EQ(c.StateOf(kRun), "finishing");
  EXPECT_TRUE(record().resize_asked);
  c.Restart();
  c.Forget();
  for (uint32_t place = 0; place < 4; ++place) {
    v1::Hello hello = HelloAt(workers_[place], kRun, place % 2);
    hello.mutable_cell()->set_replica(place / 2);
    c.Join(hello);
  }
  EXPECT_GE(c.Count("a", v1::WorkerCommand::kStop), 1);
  StopAll(5);
  ASSERT_EQ(c.StateOf(kRun), "preparing") << c.ReasonOf(kRun);
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
  EXPECT_EQ(assignment().microbatches_before, 20u);
}

// From the queue it begins again with as many as there are workers for.
TEST_F(Membership, PlannedAnewItTakesFewer) {
  Begin(2, LostReplica::kContinue);
  Steps(1, 4);
  Checkpoint(4);
  Die("d");
  ASSERT_EQ(c.StateOf(kRun), "preparing");
  c.Error("a", kRun, "no memory left");  // the second attempt is planned anew
  c.Pass(absl::Seconds(3), {"a", "b", "c"});
  ASSERT_EQ(c.StateOf(kRun), "planning") << c.ReasonOf(kRun);
  c.ToPreparing({"a", "b"}, kRun);
  c.Checked("c");  // which holds files, too, as the coordinator does
  const auto asked = *c.LastReply<command::CheckCopies>();
  c.Tick(event::CopiesChecked{asked.check, std::vector<std::string>(asked.files.size())});
  ASSERT_EQ(c.StateOf(kRun), "preparing") << c.ReasonOf(kRun);
  EXPECT_EQ(Names().size(), 2u);
  EXPECT_EQ(assignment().microbatches_before, 16u);
}

}  // namespace
}  // namespace longhaul::coordinator
