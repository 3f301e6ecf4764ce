// Shards that the coordinator asks about: hashed, named where something is wrong, copied.
#include "worker/shards/shard_courier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/support/mailbox.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/worker/agent/fake_coordinator.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Mailbox;
using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

const RunId kRun("tiny-abc123");
constexpr uint64_t kStep = 50;

class ShardCourierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = ShardStore::OpenLocal(folder_.path());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    StageSnapshot snapshot;
    snapshot.step = kStep;
    // More than one chunk.
    snapshot.parameters = {{"w", {500'000}, std::vector<float>(500'000, 0.5f)}};
    auto files = store_->Write(kRun, StageIndex(0), snapshot);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
  }
  void Start() {
    coordinator_.Start();
    courier_ = std::make_unique<ShardCourier>(
        Access::Plain(coordinator_.address(), "a token"), store_.get(),
        [this](v1::WorkerMessage message) { answers_.Push(std::move(message)); });
  }
  v1::WorkerCommand Asking(bool copy) const {
    v1::WorkerCommand command;
    command.set_run_id(kRun.value());
    command.set_epoch(3);
    command.mutable_check_shards()->set_check(7);
    command.mutable_check_shards()->set_step(kStep);
    command.mutable_check_shards()->set_copy(copy);
    for (const ShardFile& file : files_) {
      v1::CheckpointFile& wanted = *command.mutable_check_shards()->add_files();
      wanted.set_name(file.name);
      wanted.set_bytes(file.bytes);
      wanted.set_sha256(file.sha256);
    }
    return command;
  }
  v1::ShardsChecked Ask(bool copy) {
    courier_->Add(Asking(copy));
    const v1::WorkerMessage answer = answers_.Take().value_or(v1::WorkerMessage());
    EXPECT_EQ(answer.run_id(), kRun.value());
    EXPECT_EQ(answer.epoch(), 3u);
    EXPECT_EQ(answer.shards_checked().check(), 7u);
    EXPECT_EQ(answer.shards_checked().shards_size(), static_cast<int>(files_.size()));
    return answer.shards_checked();
  }
  std::string PathOf(const ShardFile& file) {
    return store_->PathOf(kRun, Step(kStep), file.name).value_or("");
  }

  TempDir folder_;
  FakeCoordinator coordinator_;
  std::unique_ptr<ShardStore> store_;
  std::vector<ShardFile> files_;
  Mailbox<v1::WorkerMessage> answers_;
  std::unique_ptr<ShardCourier> courier_;
};

TEST_F(ShardCourierTest, WholeShardsAreSaidToBeWholeAndStayHere) {
  Start();
  const v1::ShardsChecked answer = Ask(false);
  for (const v1::ShardState& shard : answer.shards()) {
    EXPECT_EQ(shard.problem(), "") << shard.name();
    EXPECT_FALSE(shard.copied());
  }
  EXPECT_TRUE(coordinator_.shards().empty());
}

TEST_F(ShardCourierTest, CopiesArriveByteByByte) {
  Start();
  const v1::ShardsChecked answer = Ask(true);
  for (const v1::ShardState& shard : answer.shards()) {
    EXPECT_TRUE(shard.copied()) << shard.copy_error();
  }
  const auto copies = coordinator_.shards();
  ASSERT_EQ(copies.size(), files_.size());
  for (const ShardFile& file : files_) {
    ASSERT_TRUE(copies.contains(file.sha256)) << file.name;
    EXPECT_EQ(copies.at(file.sha256), ReadFile(PathOf(file)).value_or(""));
  }
}

TEST_F(ShardCourierTest, ADamagedShardIsNamedAndNotCopied) {
  Start();
  std::string bytes = *ReadFile(PathOf(files_[0]));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  ASSERT_TRUE(WriteFileAtomic(PathOf(files_[0]), bytes).ok());
  const v1::ShardsChecked answer = Ask(true);
  EXPECT_EQ(answer.shards(0).name(), files_[0].name);
  EXPECT_THAT(answer.shards(0).problem(), HasSubstr("its contents changed"));
  EXPECT_FALSE(answer.shards(0).copied());
  EXPECT_EQ(answer.shards(1).problem(), "");
  EXPECT_TRUE(answer.shards(1).copied());
  EXPECT_EQ(coordinator_.shards().size(), 1u);
}

TEST_F(ShardCourierTest, ARefusedCopyIsNoDamage) {
  coordinator_.refuse_shards = {grpc::StatusCode::RESOURCE_EXHAUSTED, "the disk is full"};
  Start();
  const v1::ShardsChecked answer = Ask(true);
  for (const v1::ShardState& shard : answer.shards()) {
    EXPECT_EQ(shard.problem(), "");
    EXPECT_FALSE(shard.copied());
    EXPECT_THAT(shard.copy_error(), HasSubstr("the disk is full"));
  }
}

TEST_F(ShardCourierTest, ShutdownGivesUpATransferThatWaits) {
  Start();
  coordinator_.Stop();  // the transfer waits for it to come back
  courier_->Add(Asking(true));
  courier_->Shutdown();
  EXPECT_TRUE(answers_.empty());
  courier_->Add(Asking(false));
  courier_->Shutdown();
  EXPECT_TRUE(answers_.empty());
}

// The coordinator that asked was killed before its copy was under way.
TEST_F(ShardCourierTest, CopiesGoToTheCoordinatorThatServes) {
  coordinator_.Start();
  coordinator_.Stop();
  FakeCoordinator standby;
  standby.refuse_shards = {grpc::StatusCode::UNAVAILABLE, "this is the standby"};
  standby.Start();
  courier_ = std::make_unique<ShardCourier>(
      Access::PlainOfSeveral({coordinator_.address(), standby.address()}, ""), store_.get(),
      [this](v1::WorkerMessage message) { answers_.Push(std::move(message)); });
  courier_->Add(Asking(/*copy=*/true));
  // Not before it was refused everywhere.
  while (standby.refused_shards() == 0) absl::SleepFor(absl::Milliseconds(1));
  coordinator_.Start();
  const v1::WorkerMessage answer = answers_.Take().value_or(v1::WorkerMessage());
  ASSERT_EQ(answer.shards_checked().shards_size(), static_cast<int>(files_.size()));
  for (const v1::ShardState& shard : answer.shards_checked().shards()) {
    EXPECT_TRUE(shard.copied()) << shard.copy_error();
  }
  EXPECT_EQ(coordinator_.shards().size(), files_.size());
}

}  // namespace
}  // namespace longhaul::worker
