// Copies of every stage's state at other workers, spares, and who takes the place of a worker that
// is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class Copied : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& worker : kAbc) c.Join(Hello(worker));
    spec.recovery.attempts = 5;
    spec.recovery.every = 1;
    spec.checkpoint.every = 10;
    spec.checkpoint.keep = 1;
    spec.train.steps = 20;
  }
  virtual v1::Hello Hello(const std::string& worker) { return HelloOf(worker); }
  void Begin() {
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAbc, "tiny-1");
  }
  // Every stage has written what it knows at `step`.
  void Write(uint64_t step, bool interim = true) {
    c.Steps(kAbc, "tiny-1", step);
    for (uint32_t stage = 0; stage < 3; ++stage) {
      v1::WorkerMessage message = c.About("tiny-1");
      *message.mutable_shard() = ShardOf(step, stage);
      message.mutable_shard()->set_interim(interim);
      c.Tick(c.Said(kAbc[stage], message));
    }
  }
  // Its copies get there.
  void Copy() {
    for (const std::string& worker : kAbc) c.Checked(worker);
    c.Forget();
  }
  // The lost worker alone will have its shards of step 2.
  void BeginWithASpareAndANewerSet() {
    spec.recovery.spares = 1;
    c.Join("d");
    Begin();
    Write(1);
    Copy();
    Write(2);
  }
  std::vector<uint64_t> Kept() {
    std::vector<uint64_t> steps;
    for (const auto& one : c.records["tiny-1"].checkpoints) steps.push_back(one.step());
    return steps;
  }
  v1::RunStatus Run() { return *c.views().RunOf("tiny-1"); }

  const std::vector<std::string> kAbc = {"a", "b", "c"};
  RunSpec spec = SmallSpec("tiny", 3);
  Coordinator c;
};

TEST_F(Copied, EachStagesStateGoesToANeighbour) {
  Begin();
  Write(1);
  for (const std::string& worker : kAbc) {
    const v1::CheckShards give = c.Last(worker, v1::WorkerCommand::kCheckShards)->check_shards();
    EXPECT_TRUE(give.copy()) << worker;
    EXPECT_TRUE(give.to().paced());
    EXPECT_NE(give.to().peer_name(), worker);
    const v1::WorkerCommand* take = c.Last(give.to().peer_name(), v1::WorkerCommand::kTakeShards);
    ASSERT_NE(take, nullptr);
    EXPECT_EQ(take->take_shards().from().link_secret().size(), give.to().link_secret().size());
  }
  Copy();
  for (const v1::CheckpointFile& file : c.records["tiny-1"].checkpoints[0].files()) {
    EXPECT_EQ(file.holders_size(), 2);
  }
}

TEST_F(Copied, AnOlderSetGivesWayWhenTheNewerIsHeldTwice) {
  Begin();
  Write(1);
  Copy();
  Write(2);
  EXPECT_THAT(Kept(), testing::ElementsAre(1u, 2u));
  // While those of step 2 are on their way, nobody begins with step 3, nor is step 2 given up.
  Write(3);
  EXPECT_THAT(Kept(), testing::ElementsAre(1u, 2u, 3u));
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kCheckShards)->check_shards().step(), 2u);
  for (const std::string& worker : kAbc) c.Checked(worker);
  EXPECT_THAT(Kept(), testing::ElementsAre(2u, 3u));
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kDropCheckpoint)->drop_checkpoint().step(), 1u);
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kCheckShards)->check_shards().step(), 3u);
}

TEST_F(Copied, WhatAUserAskedForIsKeptBesideThem) {
  Begin();
  Write(10, /*interim=*/false);
  Copy();
  for (const uint64_t step : {11, 12, 13}) {
    Write(step);
    Copy();
  }
  EXPECT_THAT(Kept(), testing::ElementsAre(10u, 13u));
}

TEST_F(Copied, AnotherWorkerTakesThePlaceOfOneThatIsGone) {
  Begin();
  Write(1);
  Copy();
  c.Steps(kAbc, "tiny-1", 2);
  c.Join("d");
  c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}});
  c.Pass(absl::Seconds(4), {"a", "c", "d"});
  EXPECT_EQ(c.StateOf("tiny-1"), "recovering") << "b may come back";
  c.Pass(absl::Seconds(2), {"a", "c", "d"});
  // What b knew comes from the neighbour that holds it.
  const v1::WorkerCommand* take = c.Last("d", v1::WorkerCommand::kTakeShards);
  ASSERT_NE(take, nullptr);
  EXPECT_FALSE(take->take_shards().from().paced());
  c.Checked(take->take_shards().from().peer_name());
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.Count("d", v1::WorkerCommand::kMeasure), 0);
  EXPECT_THAT(c.LastEvent("state"),
              HasSubstr("epoch 2 goes on from step 1, in place: 1 steps are repeated; worker d "
                        "takes the place of worker b (stage 1)"));
  const v1::Assign assign = c.Last("d", v1::WorkerCommand::kAssign)->assign();
  EXPECT_EQ(assign.cell().stage(), 1u);
  EXPECT_EQ(assign.assignment().cells(1).worker_name(), "d");
  for (const std::string worker : {"a", "d", "c"}) c.Ready(worker, "tiny-1", 1);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

class CopiedOnGpus : public Copied {
 protected:
  v1::Hello Hello(const std::string& worker) override {
    v1::Hello hello = HelloOf(worker);
    hello.mutable_devices(0)->set_kind("cuda");
    return hello;
  }
};

TEST_F(CopiedOnGpus, WhoseHostHoldsNoSnapshotTakesNoPlace) {
  Begin();
  Write(1);
  Copy();
  c.Steps(kAbc, "tiny-1", 2);
  v1::Hello small = Hello("d"), large = Hello("e");
  small.mutable_devices(0)->set_host_memory_bytes(1000);
  large.mutable_devices(0)->set_host_memory_bytes(uint64_t{8} << 30);
  c.Join(small);
  c.Join(large);
  c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}});
  c.Pass(absl::Seconds(6), {"a", "c", "d", "e"});
  EXPECT_EQ(c.Last("d", v1::WorkerCommand::kTakeShards), nullptr);
  EXPECT_NE(c.Last("e", v1::WorkerCommand::kTakeShards), nullptr);
}

TEST_F(Copied, AShardThatDoesNotGetThereSendsTheRunToTheQueue) {
  Begin();
  Write(1);
  Copy();
  c.Join("d");
  c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}});
  c.Pass(absl::Seconds(6), {"a", "c", "d"});
  const v1::WorkerCommand* take = c.Last("d", v1::WorkerCommand::kTakeShards);
  ASSERT_NE(take, nullptr);
  c.Checked(take->take_shards().from().peer_name(), [](v1::ShardState& state) {
    state.set_copied(false);
    state.set_copy_error("no room");
  });
  EXPECT_EQ(c.StateOf("tiny-1"), "planning") << "it is planned anew, with d";
}

TEST_F(Copied, ASpareHoldsTheCopiesAndTakesThePlaceAtOnce) {
  spec.recovery.spares = 1;
  c.Join("d");
  Begin();
  EXPECT_EQ(c.LastEvent("worker"), "worker d is a spare of this run");
  EXPECT_EQ(c.Count("d", v1::WorkerCommand::kMeasure), 1) << "which warms it";
  c.Tick(SubmitOf(SmallSpec("other", 1), "other-1", 2));
  EXPECT_EQ(c.StateOf("other-1"), "queued") << "it is reserved";
  c.Tick(event::StopAsked{RequestId(3), "other-1", true});
  Write(1);
  for (const std::string& worker : kAbc) {
    EXPECT_EQ(c.Last(worker, v1::WorkerCommand::kCheckShards)->check_shards().to().peer_name(),
              "d");
  }
  Copy();
  EXPECT_THAT(c.events.back().text(), HasSubstr("copies of every stage at step 1 are with d"));
  c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}});
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.Count("d", v1::WorkerCommand::kTakeShards), 0) << "it has what it needs";
  EXPECT_EQ(c.Last("d", v1::WorkerCommand::kAssign)->assign().cell().stage(), 1u);
  // The lost one is the next spare.
  c.Join(HelloOf("b", "2"));
  EXPECT_EQ(c.LastEvent("worker"), "worker b is a spare of this run");
}

// The lost worker alone has its shards of a newer checkpoint, and may be started again at once.
TEST_F(Copied, ASpareWaitsNoLongerForNewerShardsThanTheirStepsTakeToRepeat) {
  BeginWithASpareAndANewerSet();
  c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}});
  const absl::Duration a_step = absl::Seconds(Run().plan().prediction().step_seconds());
  ASSERT_GT(a_step, absl::ZeroDuration());
  EXPECT_EQ(c.StateOf("tiny-1"), "recovering");
  c.Advance(a_step);
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.Last("d", v1::WorkerCommand::kAssign)->assign().assignment().start_step(), 1u);
}

TEST_F(Copied, AWorkerThatIsBackInTimeKeepsItsPlaceThoughASpareIsReady) {
  BeginWithASpareAndANewerSet();
  c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}});
  c.Join(HelloOf("b", "2"));
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.Last("b", v1::WorkerCommand::kAssign)->assign().assignment().start_step(), 2u);
}

TEST_F(Copied, WhatDidNotGetThereIsSentAgain) {
  Begin();
  Write(1);
  for (const std::string& worker : kAbc) {
    c.Checked(worker, [&](v1::ShardState& state) {
      if (worker != "b") return;
      state.set_copied(false);
      state.set_copy_error("no room");
    });
  }
  c.Forget();
  c.Pass(absl::Seconds(29), kAbc);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kCheckShards), 0);
  c.Pass(absl::Seconds(2), kAbc);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kCheckShards), 1);
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kCheckShards), 0) << "its copy is there";
  c.Checked("b");
  EXPECT_THAT(c.LastEvent("checkpoint"), HasSubstr("copies of every stage at step 1 are with"));
}

TEST_F(Copied, ACopyHasAsLongAsItsBytesTake) {
  Begin();
  c.Steps(kAbc, "tiny-1", 1);
  for (uint32_t stage = 0; stage < 3; ++stage) {
    v1::WorkerMessage message = c.About("tiny-1");
    *message.mutable_shard() = ShardOf(1, stage);
    message.mutable_shard()->set_interim(true);
    message.mutable_shard()->mutable_files(0)->set_bytes(uint64_t{2} << 30);
    c.Tick(c.Said(kAbc[stage], message));
  }
  const v1::ShardPath path = c.Last("a", v1::WorkerCommand::kCheckShards)->check_shards().to();
  const double at_least = 8.0 * (uint64_t{2} << 30) / (0.02 * path.line_bits_per_second());
  EXPECT_GT(path.limit_seconds(), at_least);
}

TEST_F(Copied, WhatAMachineTookWithItIsCopiedAnewWhenTheRunGoesOn) {
  Begin();
  Write(1);
  ASSERT_EQ(c.Last("a", v1::WorkerCommand::kCheckShards)->check_shards().to().peer_name(), "b");
  Copy();
  c.Join("d");
  c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}});
  c.Pass(absl::Seconds(6), {"a", "c", "d"});
  ASSERT_EQ(c.Last("d", v1::WorkerCommand::kTakeShards)->take_shards().from().peer_name(), "a");
  c.Checked("a");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  const v1::CheckShards again = c.Last("a", v1::WorkerCommand::kCheckShards)->check_shards();
  EXPECT_TRUE(again.to().paced()) << "a copy of what a alone knows now";
  EXPECT_EQ(again.step(), 1u);
  EXPECT_EQ(again.to().peer_name(), "d");
}

TEST_F(Copied, WhoIsToTakeAPlaceIsNoOneElsesWhileItGetsTheShards) {
  Begin();
  Write(1);
  Copy();
  c.Join("d");
  c.Die("b", "tiny-1", {{"a", 0}, {"c", 1}});
  c.Pass(absl::Seconds(6), {"a", "c", "d"});
  ASSERT_NE(c.Last("d", v1::WorkerCommand::kTakeShards), nullptr);
  c.Tick(SubmitOf(SmallSpec("other", 1), "other-1", 2));
  EXPECT_EQ(c.StateOf("other-1"), "queued");
  // b comes back before the shards have got there, and d is free again.
  c.Join(HelloOf("b", "2"));
  c.Checked(c.Last("d", v1::WorkerCommand::kTakeShards)->take_shards().from().peer_name());
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  c.Tick();
  EXPECT_EQ(c.StateOf("other-1"), "planning");
}

TEST_F(Copied, AResumeFromAStepThatWasAskedForTakesNoOther) {
  Begin();
  Write(1);
  Write(2);
  c.Tick(event::StopAsked{RequestId(3), "tiny-1", true});
  ASSERT_EQ(c.StateOf("tiny-1"), "stopped");
  event::Submitted again = SubmitOf(spec, "tiny-2", 4);
  again.submit.set_resume(true);
  again.submit.set_from_step(1);
  c.Tick(again);
  ASSERT_EQ(c.StateOf("tiny-1"), "planning");
  c.Leave("b");
  c.Join(HelloOf("b", "2"));
  c.Pass(absl::Seconds(61), kAbc);
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_EQ(Run().step(), 1u);
}

// The newer set is behind the point that was asked for, and may be held twice only then.
TEST_F(Copied, WhatARunGoesOnFromIsNoOlderSetThatGivesWay) {
  Begin();
  Write(1);
  Copy();
  Write(2);
  std::map<std::string, v1::WorkerCommand> copies;
  for (const std::string& worker : kAbc) {
    copies[worker] = *c.Last(worker, v1::WorkerCommand::kCheckShards);
  }
  c.Tick(event::StopAsked{RequestId(3), "tiny-1", true});
  event::Submitted again = SubmitOf(spec, "tiny-2", 4);
  again.submit.set_resume(true);
  again.submit.set_from_step(1);
  c.Tick(again);
  ASSERT_EQ(c.StateOf("tiny-1"), "planning");
  for (const auto& [worker, asked] : copies) c.Checked(worker, asked);
  EXPECT_THAT(c.LastEvent("checkpoint"), HasSubstr("copies of every stage at step 2 are with"));
  EXPECT_THAT(Kept(), testing::ElementsAre(1u, 2u));
  c.ToRunning(kAbc, "tiny-1", 1);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_THAT(Kept(), testing::ElementsAre(1u)) << "what lies behind it is given up";
}

}  // namespace
}  // namespace longhaul::coordinator
