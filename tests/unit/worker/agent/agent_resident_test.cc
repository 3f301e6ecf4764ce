// What an agent keeps of a stage between two epochs, and when it does not.
#include <thread>

#include "tests/unit/worker/agent/agent_harness.h"

namespace longhaul::worker {
namespace {

// The worker that is to resume has the files.
void HoldAll(v1::WorkerCommand* command) {
  v1::Assign& assign = *command->mutable_assign();
  for (v1::CheckpointFile& file : *assign.mutable_resume_files()) {
    file.add_holders()->set_worker_id(assign.assignment().cells(0).worker_id());
  }
}

TEST_F(AgentTest, ACheckpointCanBeResumedFromUntilItIsDropped) {
  worker_->Handle(Alone(1));
  ExpectReady(1);
  worker_->Handle(StartOf(1));
  const v1::WorkerMessage shard = worker_.HearUntil(v1::WorkerMessage::kShard);
  worker_.HearUntil(v1::WorkerMessage::kFinished);
  worker_->Handle(AbortOf(1));

  v1::WorkerCommand resume = Alone(2, {"train.steps=5"});
  resume.mutable_assign()->mutable_assignment()->set_start_step(3);
  *resume.mutable_assign()->mutable_resume_files() = shard.shard().files();
  HoldAll(&resume);
  worker_->Handle(resume);
  ExpectReady(2);
  worker_->Handle(StartOf(2));
  EXPECT_EQ(worker_.HearUntil(v1::WorkerMessage::kStep).step().step(), 4u);
  worker_.HearUntil(v1::WorkerMessage::kFinished);
  worker_->Handle(AbortOf(2));

  v1::WorkerCommand drop = CommandTo("tiny", 2);
  drop.mutable_drop_checkpoint()->set_step(3);
  worker_->Handle(drop);
  resume.set_epoch(3);
  resume.mutable_assign()->mutable_assignment()->set_epoch(3);
  worker_->Handle(resume);
  const v1::WorkerMessage error = worker_.Hear();
  EXPECT_EQ(error.epoch(), 3u);
  EXPECT_EQ(error.error().code(), static_cast<int>(absl::StatusCode::kNotFound))
      << error.ShortDebugString();
}

// Trains `worker` alone to the end of epoch 1; its last step's checkpoint.
v1::ShardReport TrainToTheEnd(Worker& worker, const std::vector<std::string>& overrides = {}) {
  worker->Handle(AssignOf(TinySpec(overrides), 1, 0, worker.tokens(), {worker.address()}));
  EXPECT_TRUE(worker.Hear().has_stage_ready());
  worker->Handle(StartOf(1));
  const v1::WorkerMessage shard = worker.HearUntil(v1::WorkerMessage::kShard);
  worker.HearUntil(v1::WorkerMessage::kFinished);
  worker->Handle(AbortOf(1));
  worker.ExpectFree();
  return shard.shard();
}
v1::WorkerCommand ResumeFrom(const v1::ShardReport& shard, Worker& worker, uint64_t epoch,
                             const std::vector<std::string>& overrides) {
  v1::WorkerCommand command =
      AssignOf(TinySpec(overrides), epoch, 0, worker.tokens(), {worker.address()});
  command.mutable_assign()->mutable_assignment()->set_start_step(shard.step());
  *command.mutable_assign()->mutable_resume_files() = shard.files();
  HoldAll(&command);
  return command;
}

TEST_F(AgentTest, TheNextEpochOfTheSameCellGoesOnWithTheModelThatIsThere) {
  const v1::ShardReport shard = TrainToTheEnd(worker_);
  EXPECT_EQ(worker_.resident().run_id(), "tiny");
  EXPECT_EQ(worker_.resident().first_layer(), 0u);
  EXPECT_EQ(worker_.resident().layers(), 2u);
  EXPECT_EQ(worker_.resident().step(), 3u);
  EXPECT_GT(worker_.resident().memory_bytes(), 0u);
  v1::Hello hello;
  worker_->FillHello(&hello);
  EXPECT_EQ(hello.run_id(), "");
  EXPECT_EQ(hello.resident().run_id(), "tiny");

  worker_.LoseShards(3);  // nothing is read
  worker_->Handle(ResumeFrom(shard, worker_, 2, {"train.steps=5"}));
  ExpectReady(2);
  EXPECT_EQ(worker_.resident().run_id(), "") << "it is at work";
  worker_->Handle(StartOf(2));
  EXPECT_EQ(worker_.HearUntil(v1::WorkerMessage::kStep).step().step(), 4u);
  EXPECT_EQ(worker_.models_made(), 1);
}

TEST_F(AgentTest, AResumedRunHasTheLossesOfAnUnbrokenOne) {
  const std::vector<std::string> five = {"train.steps=5"};
  const auto losses = [&](Worker& worker, const v1::WorkerCommand& assign) {
    worker->Handle(assign);
    EXPECT_TRUE(worker.Hear().has_stage_ready());
    worker->Handle(StartOf(assign.epoch()));
    std::map<uint64_t, double> of_steps;
    while (!of_steps.contains(5)) {
      const v1::StepReport step = worker.HearUntil(v1::WorkerMessage::kStep).step();
      of_steps[step.step()] = step.loss();
      if (step.step() == 0) break;
    }
    of_steps.erase(of_steps.begin(), of_steps.find(4));
    return of_steps;
  };
  Worker unbroken;
  const auto expected =
      losses(unbroken, AssignOf(TinySpec(five), 1, 0, unbroken.tokens(), {unbroken.address()}));
  ASSERT_EQ(expected.size(), 2u);
  const v1::ShardReport shard = TrainToTheEnd(worker_);
  EXPECT_EQ(losses(worker_, ResumeFrom(shard, worker_, 2, five)), expected) << "as they were";
  worker_->Handle(AbortOf(2));
  worker_.ExpectFree();
  EXPECT_EQ(worker_.resident().step(), 5u);
  // The kept snapshot is of step 5, so this one comes from the files.
  EXPECT_EQ(losses(worker_, ResumeFrom(shard, worker_, 3, five)), expected) << "from files";
  EXPECT_EQ(worker_.models_made(), 1);
}

// Also what a step under way has left is gone.
TEST_F(AgentTest, AnAbortedEpochIsRepeatedFromTheSnapshotInMemory) {
  // The next checkpoint must not come before the abort: it would replace the snapshot in memory.
  std::vector<std::string> endless = kEndless;
  endless.emplace_back("checkpoint.every=1000");
  worker_->Handle(Alone(1, endless));
  ExpectReady(1);
  worker_->Handle(StartOf(1));
  // Until there is a checkpoint and a step behind it.
  v1::ShardReport shard;
  std::map<uint64_t, double> losses;
  while (shard.step() == 0 || !losses.contains(shard.step() + 1)) {
    const v1::WorkerMessage message = worker_.Hear();
    ASSERT_NE(message.body_case(), v1::WorkerMessage::BODY_NOT_SET);
    if (message.has_step()) losses[message.step().step()] = message.step().loss();
    if (message.has_shard()) shard = message.shard();
  }
  worker_->Handle(AbortOf(1));
  worker_.ExpectFree();
  EXPECT_GT(worker_.resident().step(), shard.step());
  worker_.LoseShards(shard.step());
  worker_->Handle(ResumeFrom(shard, worker_, 2, endless));
  ExpectReady(2);
  worker_->Handle(StartOf(2));
  const v1::StepReport again = worker_.HearUntil(v1::WorkerMessage::kStep).step();
  EXPECT_EQ(again.step(), shard.step() + 1);
  EXPECT_EQ(again.loss(), losses[again.step()]);
  EXPECT_EQ(worker_.models_made(), 1);
}

TEST_F(AgentTest, AnotherCellAndABeginningFromScratchGetAModelOfTheirOwn) {
  TrainToTheEnd(worker_);
  worker_->Handle(Alone(2));
  ExpectReady(2);
  EXPECT_EQ(worker_.models_made(), 2);
  worker_->Handle(AbortOf(2));
  worker_.ExpectFree();
  EXPECT_EQ(worker_.resident().step(), 0u);
  // Nothing has trained it.
  worker_->Handle(Alone(3));
  ExpectReady(3);
  EXPECT_EQ(worker_.models_made(), 2);
  // Half of the layers.
  Worker other;
  const std::vector<std::string> addresses = {worker_.address(), other.address()};
  worker_->Handle(AssignOf(TinySpec(), 4, 0, worker_.tokens(), addresses));
  other->Handle(AssignOf(TinySpec(), 4, 1, other.tokens(), addresses));
  ExpectReady(4);
  EXPECT_EQ(worker_.models_made(), 3);
}

TEST_F(AgentTest, AnotherRunTakesTheMemoryAndItsOwnPlanningDoesNot) {
  const auto measure = [&](const std::string& run) {
    v1::WorkerCommand command = CommandTo(run, 2);
    command.mutable_measure()->set_run_yaml(ToYaml(TinySpec()));
    command.mutable_measure()->set_vocabulary(256);
    worker_->Handle(command);
    EXPECT_TRUE(worker_.Hear().has_layer_times());
  };
  TrainToTheEnd(worker_);
  measure("tiny");
  EXPECT_EQ(worker_.resident().run_id(), "tiny");
  measure("another");
  EXPECT_EQ(worker_.resident().run_id(), "");

  Worker other;
  TrainToTheEnd(other);
  other->Handle(AssignOf(TinySpec({"name=another"}), 1, 0, other.tokens(), {other.address()}));
  EXPECT_TRUE(other.Hear().has_stage_ready());
  EXPECT_EQ(other.models_made(), 2);
}

TEST_F(AgentTest, AModelThatNobodyAsksForIsDroppedAfterAWhile) {
  Worker impatient(absl::ZeroDuration());
  TrainToTheEnd(impatient);
  // Its thread looks at the time when it has nothing to do.
  while (!impatient.resident().run_id().empty()) std::this_thread::yield();
  EXPECT_EQ(impatient.models_made(), 1);
}

}  // namespace
}  // namespace longhaul::worker
