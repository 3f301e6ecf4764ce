// Workers that say that they are leaving, and the runs that go on elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const std::string kOne = "tiny-1";

class Departing : public ::testing::Test {
 protected:
  void SetUp() override {
    spec.recovery.attempts = 5;
    spec.checkpoint.every = 0;
    spec.train.steps = 100;
  }
  void Begin(const std::vector<std::string>& others = {"c"}) {
    for (const std::string& worker : kAb) c.Join(worker);
    c.Tick(SubmitOf(spec, kOne));
    c.ToRunning(kAb, kOne);
    for (const std::string& worker : others) c.Join(worker);
    c.Steps(kAb, kOne, 1);
    c.Steps(kAb, kOne, 2);
    c.Forget();
  }
  void Leaves(const std::string& worker, double seconds = 25) {
    v1::WorkerMessage message;
    message.mutable_leaving()->set_seconds(seconds);
    message.mutable_leaving()->set_why("it was told to end (SIGTERM)");
    c.Tick(c.Said(worker, message));
  }
  // The stages stop after step 3, as they were asked to.
  void Stopped() {
    c.Steps(kAb, kOne, 3);
    c.Shards(kAb, kOne, 3);
    for (const std::string& worker : kAb) c.Finished(worker, kOne, 3, /*stopped=*/true);
  }
  int MayLeave(const std::string& worker) { return c.Count(worker, v1::WorkerCommand::kMayLeave); }
  std::vector<std::string> Crew() {
    std::vector<std::string> names;
    for (const Cell& cell : c.records.at(kOne).plan->assignment.cells) {
      names.push_back(cell.worker_name);
    }
    return names;
  }
  bool HasEvent(const std::string& text) {
    return std::ranges::any_of(c.events, [&](const v1::Event& event) {
      return event.text().find(text) != std::string::npos;
    });
  }

  RunSpec spec = SmallSpec("tiny", 2);
  Coordinator c;
};

TEST_F(Departing, AWorkerThatNobodyNeedsMayGoAtOnce) {
  Begin();
  Leaves("c");
  EXPECT_EQ(MayLeave("c"), 1);
  EXPECT_EQ(c.LastEvent("worker"),
            "worker c is leaving, within 25 s: it was told to end (SIGTERM)");
  Leaves("c");
  EXPECT_EQ(MayLeave("c"), 1) << "said twice";
  EXPECT_EQ(c.StateOf(kOne), "running");
}

TEST_F(Departing, ARunGoesOnWithAnotherWorkerAndRepeatsNothing) {
  Begin();
  Leaves("b");
  EXPECT_EQ(c.StateOf(kOne), "finishing");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kStop), 1);
  EXPECT_THAT(c.LastEvent("state"),
              HasSubstr("worker b (stage 1) is leaving: the run stops after the step under way, "
                        "with a checkpoint, and goes on from there with worker c"));
  EXPECT_EQ(MayLeave("b"), 0);
  Stopped();
  EXPECT_EQ(c.StateOf(kOne), "recovering");
  // The worker that leaves still sends its shards.
  const v1::WorkerCommand* give = c.Last("b", v1::WorkerCommand::kCheckShards);
  ASSERT_NE(give, nullptr);
  EXPECT_EQ(give->check_shards().to().peer_name(), "c");
  EXPECT_FALSE(give->check_shards().to().paced());
  EXPECT_EQ(MayLeave("b"), 0);
  c.Checked("b");
  EXPECT_EQ(c.StateOf(kOne), "preparing");
  EXPECT_THAT(Crew(), ElementsAre("a", "c"));
  EXPECT_EQ(c.records.at(kOne).plan->assignment.start_step, 3u);
  EXPECT_TRUE(
      HasEvent("epoch 2 goes on from step 3, in place; worker c takes the place of worker "
               "b (stage 1)"));
  EXPECT_EQ(MayLeave("b"), 1);
  c.Leave("b");
  c.Ready("a", kOne, 3);
  c.Ready("c", kOne, 3);
  EXPECT_EQ(c.StateOf(kOne), "running");
  EXPECT_EQ(c.views().RunOf(kOne)->spares_size(), 0);
}

TEST_F(Departing, AReplacementMayLeaveWhileItGetsTheShards) {
  Begin({"c", "d"});
  Leaves("b");
  Stopped();
  const v1::WorkerCommand* give = c.Last("b", v1::WorkerCommand::kCheckShards);
  ASSERT_NE(give, nullptr);
  ASSERT_EQ(give->check_shards().to().peer_name(), "c");
  Leaves("c");
  EXPECT_EQ(c.StateOf(kOne), "recovering");
  c.Checked("b");
  c.Checked("b");
  EXPECT_EQ(c.StateOf(kOne), "preparing");
  EXPECT_THAT(Crew(), ElementsAre("a", "d"));
  c.Checked("c");  // the shards that it got are saved first
  EXPECT_EQ(MayLeave("c"), 1);
}

TEST_F(Departing, NoRunTakesALeavingWorker) {
  spec.recovery.spares = 1;
  Begin({"c", "d"});
  EXPECT_EQ(c.views().RunOf(kOne)->spares(0), "c");
  Leaves("c");
  EXPECT_EQ(MayLeave("c"), 1) << "the spare is free";
  ASSERT_EQ(c.views().RunOf(kOne)->spares_size(), 1);
  EXPECT_EQ(c.views().RunOf(kOne)->spares(0), "d");
  RunSpec other = SmallSpec("other", 1);
  c.Tick(SubmitOf(other, "other-1", 2));
  EXPECT_EQ(c.StateOf("other-1"), "queued");
}

TEST_F(Departing, WithoutAnotherWorkerTheStateIsSavedAtANeighbour) {
  Begin({});
  Leaves("b");
  EXPECT_EQ(c.StateOf(kOne), "finishing");
  Stopped();
  EXPECT_EQ(c.StateOf(kOne), "recovering");
  const v1::WorkerCommand* give = c.Last("b", v1::WorkerCommand::kCheckShards);
  ASSERT_NE(give, nullptr);
  EXPECT_EQ(give->check_shards().to().peer_name(), "a");
  c.Checked("b");
  c.Leave("b");
  c.Join("c");
  c.Checked("a");  // sends them on
  EXPECT_EQ(c.StateOf(kOne), "preparing");
  EXPECT_THAT(Crew(), ElementsAre("a", "c"));
  EXPECT_EQ(c.records.at(kOne).plan->assignment.start_step, 3u);
}

TEST_F(Departing, WithTooLittleTimeTheNewestCopiesAreTaken) {
  spec.recovery.every = 1;
  spec.recovery.spares = 1;
  for (const std::string worker : {"a", "b", "c"}) c.Join(worker);
  c.Tick(SubmitOf(spec, kOne));
  c.ToRunning(kAb, kOne);
  c.Steps(kAb, kOne, 1);
  for (uint32_t stage = 0; stage < 2; ++stage) {
    v1::WorkerMessage message = c.About(kOne);
    *message.mutable_shard() = ShardOf(1, stage);
    message.mutable_shard()->set_interim(true);
    c.Tick(c.Said(kAb[stage], message));
  }
  for (const std::string& worker : kAb) c.Checked(worker);
  c.Steps(kAb, kOne, 2);
  c.Steps(kAb, kOne, 3);
  c.Forget();
  Leaves("b", 1);
  EXPECT_TRUE(HasEvent("the run goes on from the newest copies, of step 1"));
  EXPECT_EQ(MayLeave("b"), 1);
  EXPECT_EQ(c.StateOf(kOne), "running");
  // Its process has ended: nobody waits for it.
  c.Leave("b");
  c.Tick();
  EXPECT_EQ(c.StateOf(kOne), "preparing") << c.ReasonOf(kOne);
  EXPECT_THAT(Crew(), ElementsAre("a", "c"));
  EXPECT_EQ(c.records.at(kOne).plan->assignment.start_step, 1u);
  EXPECT_TRUE(HasEvent("2 steps are repeated"));
  EXPECT_FALSE(HasEvent("is left out of runs")) << "it is no fault of the worker";
}

TEST_F(Departing, AWorkerSaysItAgainInItsNextSession) {
  Begin();
  Leaves("b");
  c.Leave("b", "reset");
  v1::Hello hello = HelloAt("b", kOne, 1);
  hello.mutable_leaving()->set_seconds(20);
  c.Join(hello);
  EXPECT_EQ(c.StateOf(kOne), "finishing");
  Stopped();
  c.Checked("b");
  EXPECT_EQ(c.StateOf(kOne), "preparing");
  EXPECT_EQ(MayLeave("b"), 1);
}

TEST_F(Departing, ACoordinatorThatRestartsHearsOfIt) {
  Begin();
  Leaves("b");
  c.Restart();
  c.Join(HelloAt("a", kOne, 0));
  v1::Hello hello = HelloAt("b", kOne, 1);
  hello.mutable_leaving()->set_seconds(20);
  c.Join(hello);
  c.Join("c");
  Stopped();
  c.Checked("b");
  EXPECT_EQ(c.StateOf(kOne), "preparing");
  EXPECT_THAT(Crew(), ElementsAre("a", "c"));
}

TEST_F(Departing, ItsNextProcessIsAWorkerLikeOthers) {
  Begin();
  Leaves("c");
  c.Leave("c");
  c.Join(HelloOf("c", "2"));
  Leaves("b");
  Stopped();
  c.Checked("b");
  EXPECT_THAT(Crew(), ElementsAre("a", "c"));
}

TEST_F(Departing, ARunThatIsAboutToEndDoesSo) {
  spec.train.steps = 3;
  Begin();
  Leaves("b");
  EXPECT_EQ(c.StateOf(kOne), "running");
  c.Steps(kAb, kOne, 3);
  c.Shards(kAb, kOne, 3);
  for (const std::string& worker : kAb) c.Finished(worker, kOne, 3);
  EXPECT_EQ(c.StateOf(kOne), "done");
  EXPECT_EQ(MayLeave("b"), 1);
}

TEST_F(Departing, AllMayLeaveAtOnce) {
  Begin({});
  Leaves("a");
  Leaves("b");
  Stopped();
  EXPECT_EQ(c.StateOf(kOne), "recovering");
  // The coordinator is the only one that stays.
  for (const std::string& worker : kAb) {
    const v1::WorkerCommand* give = c.Last(worker, v1::WorkerCommand::kCheckShards);
    ASSERT_NE(give, nullptr) << worker;
    EXPECT_FALSE(give->check_shards().has_to()) << worker;
  }
  for (const std::string& worker : kAb) c.Checked(worker);
  for (const std::string& worker : kAb) c.Leave(worker);
  for (const std::string worker : {"c", "d"}) c.Join(worker);
  c.Tick();
  c.Pass(absl::Seconds(6), {"c", "d"});
  EXPECT_EQ(c.StateOf(kOne), "preparing") << c.ReasonOf(kOne);
  EXPECT_EQ(c.records.at(kOne).plan->assignment.start_step, 3u);
}

TEST_F(Departing, AnyTimeMayBeSaid) {
  Begin();
  Leaves("b", -1);
  Leaves("c", 1e300);
  c.Pass(absl::Seconds(1), {"a", "b", "c"});
  EXPECT_EQ(c.StateOf(kOne), "finishing");
}

// Copies on several machines.
class Machines : public Departing {
 protected:
  void BeginOn(const std::vector<std::string>& machines) {
    const std::vector<std::string> names = {"a", "b", "c", "d"};
    for (size_t i = 0; i < machines.size(); ++i) {
      v1::Hello hello = HelloOf(names[i]);
      hello.set_machine(machines[i]);
      c.Join(hello);
      workers_.push_back(names[i]);
    }
    spec.pipeline.stages = static_cast<uint32_t>(machines.size());
    c.Tick(SubmitOf(spec, kOne));
    const auto& reply = c.LastReply<command::Reply<v1::SubmitReply>>()->reply;
    for (const std::string& note : reply->notes()) submitted_ += note + "\n";
    c.ToRunning(workers_, kOne);
  }
  std::string HolderOf(const std::string& worker) {
    const v1::WorkerCommand* give = c.Last(worker, v1::WorkerCommand::kCheckShards);
    return give == nullptr ? "" : give->check_shards().to().peer_name();
  }
  std::vector<std::string> workers_;
  std::string submitted_;  // what the submitter is told
};

TEST_F(Machines, BetweenMachinesStateIsCopiedUnlessTheRunFileSaysHowOften) {
  BeginOn({"m1", "m2"});
  EXPECT_GT(c.records.at(kOne).plan->assignment.copy_every, 0u);
}

TEST_F(Machines, OnOneMachineNothingIsCopied) {
  BeginOn({"m1", "m1"});
  EXPECT_EQ(c.records.at(kOne).plan->assignment.copy_every, 0u);
}

TEST_F(Machines, ARunFileMayWantNoCopies) {
  spec.recovery.every_between_hosts = false;
  BeginOn({"m1", "m2"});
  EXPECT_EQ(c.records.at(kOne).plan->assignment.copy_every, 0u);
}

TEST_F(Machines, CopiesGoToAnotherMachineEvenIfItIsNoNeighbour) {
  spec.recovery.every = 1;
  BeginOn({"m1", "m1", "m2", "m2"});
  c.Steps(workers_, kOne, 1);
  for (uint32_t stage = 0; stage < 4; ++stage) {
    v1::WorkerMessage message = c.About(kOne);
    *message.mutable_shard() = ShardOf(1, stage);
    message.mutable_shard()->set_interim(true);
    c.Tick(c.Said(workers_[stage], message));
  }
  EXPECT_THAT((std::vector<std::string>{HolderOf("a"), HolderOf("b")}),
              ::testing::Each(::testing::AnyOf("c", "d")));
  EXPECT_THAT((std::vector<std::string>{HolderOf("c"), HolderOf("d")}),
              ::testing::Each(::testing::AnyOf("a", "b")));
}

TEST_F(Machines, AStatusWarnsWhereALostDiskLosesTheRun) {
  StateOptions options;
  options.machine = "m0";
  c.state = std::make_unique<State>(options, StoredRuns{}, 1, c.now);
  spec.recovery.every_between_hosts = false;
  BeginOn({"m1", "m2"});
  const v1::RunStatus status = *c.views().RunOf(kOne);
  EXPECT_THAT(status.warnings(), ElementsAre(HasSubstr("a lost disk loses this run")));
  EXPECT_THAT(submitted_, HasSubstr("warning: a lost disk loses this run"));
  EXPECT_THAT(status.plan().explanation(), HasSubstr("Warning: a lost disk loses this run"));
}

TEST_F(Machines, ACopyIsProtectionEnough) {
  StateOptions options;
  options.machine = "m0";
  c.state = std::make_unique<State>(options, StoredRuns{}, 1, c.now);
  BeginOn({"m1", "m2"});
  EXPECT_TRUE(c.views().RunOf(kOne)->warnings().empty());
}

TEST_F(Machines, AClusterOnTheCoordinatorsMachineIsNotWarnedOf) {
  StateOptions options;
  options.machine = "m0";
  c.state = std::make_unique<State>(options, StoredRuns{}, 1, c.now);
  BeginOn({"m0", "m0"});
  EXPECT_TRUE(c.views().RunOf(kOne)->warnings().empty());
}

}  // namespace
}  // namespace longhaul::coordinator
