// Runs with several replicas of the pipeline.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/state/books/shard_book.h"
#include "run/plan/chain.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two replicas of two stages: workers a and b, c and d.
class StateOfReplicas : public ::testing::Test {
 protected:
  const std::vector<std::string> workers_ = {"a", "b", "c", "d"};
  void SetUp() override {
    for (const std::string& worker : workers_) c.Join(worker);
    spec_ = SmallSpec("tiny", 2);
    spec_.replicas.count = 2;
    spec_.train.steps = 100;
    c.Tick(SubmitOf(spec_, "tiny-1"));
  }
  void Run() {
    c.ToRunning(workers_, "tiny-1");
    c.Forget();
  }
  void Step(uint64_t step, std::initializer_list<double> losses) {
    auto loss = losses.begin();
    for (uint32_t place = 0; place < workers_.size(); ++place) {
      v1::StepReport report = c.Report(step, place % 2, 2);
      if (place % 2 == 1) report.set_loss(*loss++);
      report.set_seconds(place < 2 ? 1 : 9);
      c.Step(workers_[place], "tiny-1", report);
    }
  }
  // As ShardStore names them: parameters, of which all replicas have the same, and a part of the
  // moments.
  void Shard(uint32_t place, uint64_t step, char parameters = 'a') {
    v1::WorkerMessage message = c.About("tiny-1");
    v1::ShardReport& shard = *message.mutable_shard();
    shard.set_step(step);
    const uint32_t stage = place % 2, replica = place / 2;
    const auto add = [&](const std::string& name, char content) {
      v1::CheckpointFile& file = *shard.add_files();
      file.set_name(name);
      file.set_sha256(std::string(64, content));
      file.set_bytes(10);
      return &file;
    };
    add(fmt::format("stage-{}.params.safetensors", stage), parameters);
    add(fmt::format("stage-{}.replica-{}.optim.safetensors", stage, replica),
        static_cast<char>('b' + replica))
        ->set_replica(replica);
    c.Tick(c.Said(workers_[place], message));
  }
  RunSpec spec_;
  Coordinator c;
};

TEST_F(StateOfReplicas, TakeAsManyWorkersEach) {
  Run();
  const Assignment assignment = c.records["tiny-1"].plan->assignment;
  ASSERT_EQ(assignment.cells.size(), 4u);
  for (uint32_t place = 0; place < 4; ++place) {
    EXPECT_EQ(assignment.cells[place].worker_name, workers_[place]);
    EXPECT_EQ(assignment.cells[place].id, (CellId{place / 2, place % 2}));
  }
}

TEST_F(StateOfReplicas, WaitForAllTheirWorkers) {
  Coordinator few;
  for (const std::string worker : {"a", "b", "c"}) few.Join(worker);
  few.Tick(SubmitOf(spec_, "tiny-1"));
  EXPECT_THAT(few.state->views().RunOf("tiny-1")->reason(),
              HasSubstr("needs 4 workers, 3 connected"));
}

TEST_F(StateOfReplicas, AStepHasTheMeanOfTheirLosses) {
  Run();
  Step(1, {4, 5});
  const v1::StepRecord step = c.steps["tiny-1"].at(1);
  EXPECT_EQ(step.loss(), 4.5);
  EXPECT_EQ(step.gradient_norm(), 2.0);
  EXPECT_EQ(step.seconds(), 1) << "others wait for the validation of the first replica";
  EXPECT_EQ(step.squared_norms_size(), 4);
}

TEST_F(StateOfReplicas, HoldTheSameParametersAndAPartOfTheRestEach) {
  Run();
  for (uint32_t place = 0; place < 4; ++place) Shard(place, 2);
  ASSERT_EQ(c.records["tiny-1"].checkpoints.size(), 1u);
  const v1::CheckpointManifest& manifest = c.records["tiny-1"].checkpoints.front();
  std::map<std::string, std::vector<std::string>> holders;
  for (const v1::CheckpointFile& file : manifest.files()) {
    for (const auto& holder : file.holders()) holders[file.name()].push_back(holder.worker_name());
  }
  EXPECT_EQ(holders.size(), 6u);
  EXPECT_THAT(holders["stage-0.params.safetensors"], ElementsAre("a", "c"));
  EXPECT_THAT(holders["stage-1.params.safetensors"], ElementsAre("b", "d"));
  EXPECT_THAT(holders["stage-1.replica-1.optim.safetensors"], ElementsAre("d"));

  // Who goes on in the same place needs its own part alone; one replica, or three, need all.
  const auto names = [&](CellId id, LayerRange layers, uint32_t replicas) {
    std::vector<std::string> found;
    for (const auto& file : FilesOfCell(manifest, {.id = id, .layers = layers}, replicas)) {
      found.push_back(file.name());
    }
    return found;
  };
  EXPECT_THAT(names({1, 0}, {0, 2}, 2),
              ElementsAre("stage-0.params.safetensors", "stage-0.replica-1.optim.safetensors"));
  const std::vector<std::string> all = {"stage-0.params.safetensors",
                                        "stage-0.replica-0.optim.safetensors",
                                        "stage-0.replica-1.optim.safetensors"};
  EXPECT_EQ(names({0, 0}, {0, 2}, 1), all);
  EXPECT_EQ(names({2, 0}, {0, 2}, 3), all);
  EXPECT_EQ(names({1, 0}, {0, 1}, 2), all) << "with another split";
}

TEST_F(StateOfReplicas, WithOtherParametersTheRunFails) {
  Run();
  for (uint32_t place = 0; place < 3; ++place) Shard(place, 2);
  Shard(3, 2, 'f');
  EXPECT_TRUE(c.records["tiny-1"].checkpoints.empty());
  const auto status = c.views().RunOf("tiny-1");
  EXPECT_EQ(status->state(), "failed");
  EXPECT_THAT(status->reason(), HasSubstr("stage 1 of replica 1 has other parameters"));
}

}  // namespace
}  // namespace longhaul::coordinator
