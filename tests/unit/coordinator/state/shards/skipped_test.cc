// Checkpoints that a stage cannot write, and shards that a disk does not let anybody look at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/state/books/shard_book.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class Skipped : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& worker : kAb) c.Join(worker);
    RunSpec spec = SmallSpec("tiny", 2);
    spec.train.steps = 20;
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    for (uint64_t step = 1; step <= 4; ++step) c.Steps(kAb, "tiny-1", step);
    c.Shards(kAb, "tiny-1", 2);
    c.Forget();
  }
  void Shard(const std::string& worker, uint32_t stage, uint64_t step, const std::string& problem) {
    v1::WorkerMessage message = c.About("tiny-1", 1);
    *message.mutable_shard() = ShardOf(step, stage);
    if (!problem.empty()) {
      message.mutable_shard()->clear_files();
      message.mutable_shard()->set_problem(problem);
    }
    c.Tick(c.Said(worker, message));
  }
  size_t Checkpoints() { return c.records.at("tiny-1").checkpoints.size(); }
  int Drops(const std::string& worker) {
    return c.Count(worker, v1::WorkerCommand::kDropCheckpoint);
  }

  Coordinator c;
};

TEST_F(Skipped, TrainingGoesOnAndTheOlderOneStays) {
  Shard("a", 0, 4, "");
  Shard("b", 1, 4, "no room for the checkpoint of step 4");
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.LastEvent("checkpoint"),
            "the checkpoint of step 4 is skipped, training goes on: worker b (stage 1): no room "
            "for the checkpoint of step 4");
  EXPECT_EQ(Checkpoints(), 1u);
  // What the others have written of it takes room for nothing.
  EXPECT_EQ(Drops("a"), 1);
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kDropCheckpoint)->drop_checkpoint().step(), 4u);
}

TEST_F(Skipped, AShardThatComesLaterIsDroppedToo) {
  Shard("b", 1, 4, "no room");
  Shard("b", 1, 4, "no room");
  EXPECT_EQ(Drops("a"), 1) << "said once";
  Shard("a", 0, 4, "");
  EXPECT_EQ(Drops("a"), 2);
  EXPECT_EQ(Checkpoints(), 1u);
}

TEST_F(Skipped, TheNextOneIsCommitted) {
  Shard("b", 1, 4, "no room");
  for (uint64_t step = 5; step <= 6; ++step) c.Steps(kAb, "tiny-1", step);
  c.Shards(kAb, "tiny-1", 6);
  EXPECT_EQ(Checkpoints(), 2u);
}

TEST_F(Skipped, ACommittedOneIsNotSkipped) {
  Shard("b", 1, 2, "no room");
  EXPECT_EQ(Checkpoints(), 1u);
  EXPECT_EQ(Drops("a"), 0);
}

TEST_F(Skipped, AFileThatCannotBeLookedAtIsNotDamaged) {
  c.Shards(kAb, "tiny-1", 4);
  c.Error("a", "tiny-1", "some error");
  ASSERT_EQ(c.StateOf("tiny-1"), "failed");
  RunSpec spec = SmallSpec("tiny", 2);
  spec.train.steps = 20;
  c.Tick(SubmitOf(spec, "unused", 3, /*resume=*/true));
  ASSERT_EQ(c.StateOf("tiny-1"), "planning");
  c.Checked("a");
  c.Checked("b", [](v1::ShardState& state) {
    state.set_problem("it cannot be read: Input/output error");
    state.set_unreadable(true);
  });
  // Nothing older is taken, and nothing is given up: a person looks at the disk.
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("worker b cannot look at stage-1.params.safetensors of the checkpoint of "
                        "step 4: it cannot be read: Input/output error"));
  ASSERT_EQ(Checkpoints(), 2u);
  EXPECT_EQ(c.records.at("tiny-1").checkpoints.back().files(1).holders(0).problem(), "");
  // Then it goes on from the same.
  c.Tick(SubmitOf(spec, "unused", 4, /*resume=*/true));
  c.Checked("a");
  c.Checked("b");
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 4u);
  EXPECT_EQ(Drops("a"), 0);
}

TEST_F(Skipped, ACopyThatCannotBeLookedAtIsNotLost) {
  c.Error("a", "tiny-1", "some error");
  RunRecord stored = c.records.at("tiny-1");
  for (v1::CheckpointFile& file : *stored.checkpoints.back().mutable_files())
    AddHolder("", "", &file);
  Coordinator other({stored});
  other.Tick(event::CheckpointsAsked{RequestId(8), "tiny-1", true});
  const auto* copies = other.LastReply<command::CheckCopies>();
  ASSERT_NE(copies, nullptr);
  other.Tick(event::CopiesChecked{
      copies->check,
      std::vector<std::string>(copies->files.size(), "it cannot be read: Input/output error"),
      std::vector<bool>(copies->files.size(), true)});
  for (const v1::CheckpointFile& file : other.records.at("tiny-1").checkpoints.back().files()) {
    EXPECT_TRUE(IsCopied(file)) << file.name();
  }
}

}  // namespace
}  // namespace longhaul::coordinator
