// Files go from one worker's store to another's over loopback links: whole, paced, damaged on the
// way or before it, and cut short.
#include "worker/shards/shard_transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "tests/support/mailbox.h"
#include "tests/support/temp_dir.h"
#include "transport/p2p/loopback/factory.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Mailbox;
using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

const RunId kRun("tiny-abc123");
constexpr uint64_t kStep = 50;

// A worker, as far as it has files to give.
struct Partner {
  Partner()
      : transport(*transport::loopback::CreateTransport({})),
        store(*ShardStore::OpenLocal(folder.path())),
        transfers(std::make_unique<ShardTransfers>(
            transport::TransportsByName{{"ucx", transport.get()}}, store.get(), &traffic,
            [this](v1::WorkerMessage message) { answers.Push(std::move(message)); })) {}

  TempDir folder;
  Mailbox<v1::WorkerMessage> answers;
  TrafficWatch traffic;
  std::unique_ptr<transport::Transport> transport;
  std::unique_ptr<ShardStore> store;
  std::unique_ptr<ShardTransfers> transfers;
};

class ShardTransfersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    StageSnapshot snapshot;
    snapshot.step = kStep;
    // Many pieces, and an empty file beside them.
    snapshot.parameters = {{"w", {300'000}, std::vector<float>(300'000, 0.5f)}};
    auto files = source.store->Write(kRun, StageIndex(1), snapshot);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
  }

  v1::ShardPath Path(bool dial) const {
    v1::ShardPath path;
    path.set_peer_name(dial ? "holder" : "source");
    path.set_transport("ucx");
    path.set_dial(dial);
    if (dial) path.add_addresses(holder.transport->address());
    path.set_link_secret("a secret");
    path.set_limit_seconds(30);
    path.set_paced(paced);
    path.set_line_bits_per_second(line_bits_per_second);
    return path;
  }
  template <class Body>
  void AddFiles(Body* body) const {
    body->set_check(7);
    body->set_step(kStep);
    for (const ShardFile& file : files_) {
      v1::CheckpointFile& one = *body->add_files();
      one.set_name(file.name);
      one.set_bytes(file.bytes);
      one.set_sha256(file.sha256);
    }
  }
  v1::WorkerCommand Command() const {
    v1::WorkerCommand command;
    command.set_run_id(kRun.value());
    command.set_epoch(3);
    return command;
  }
  void Take() {
    v1::WorkerCommand command = Command();
    AddFiles(command.mutable_take_shards());
    *command.mutable_take_shards()->mutable_from() = Path(false);
    holder.transfers->Handle(command);
  }
  void Give() {
    v1::WorkerCommand command = Command();
    AddFiles(command.mutable_check_shards());
    command.mutable_check_shards()->set_copy(true);
    *command.mutable_check_shards()->mutable_to() = Path(true);
    source.transfers->Handle(command);
  }
  v1::ShardsChecked Answer() {
    const v1::WorkerMessage message = source.answers.Take().value_or(v1::WorkerMessage());
    EXPECT_EQ(message.run_id(), kRun.value());
    EXPECT_EQ(message.epoch(), 3u);
    EXPECT_EQ(message.shards_checked().check(), 7u);
    EXPECT_EQ(message.shards_checked().shards_size(), static_cast<int>(files_.size()));
    return message.shards_checked();
  }
  void ExpectCopied(const v1::ShardsChecked& answer) {
    for (const v1::ShardState& shard : answer.shards()) {
      EXPECT_TRUE(shard.copied()) << shard.copy_error();
      EXPECT_EQ(shard.problem(), "");
    }
    for (const ShardFile& file : files_) {
      EXPECT_TRUE(holder.store->Check(kRun, Step(kStep), file).ok());
    }
  }
  std::string PathOf(Partner& side, const ShardFile& file) {
    return side.store->PathOf(kRun, Step(kStep), file.name).value_or("");
  }

  Partner source, holder;
  std::vector<ShardFile> files_;
  bool paced = false;
  double line_bits_per_second = 0;
};

TEST_F(ShardTransfersTest, FilesArriveByteByByte) {
  Take();
  Give();
  ExpectCopied(Answer());
  EXPECT_TRUE(holder.answers.empty()) << "the source answers for both";
}

TEST_F(ShardTransfersTest, WhatCameTwiceIsDoneOnceAndMayBeAskedForAgain) {
  Take();
  Give();
  Give();
  ExpectCopied(Answer());
  source.transfers->Shutdown();
  EXPECT_TRUE(source.answers.empty());
}

TEST_F(ShardTransfersTest, PacedPiecesArriveTooWhereTheLinesAreNeverQuiet) {
  paced = true;
  line_bits_per_second = 40e9;  // whose fiftieth is enough
  source.traffic.Begin();
  holder.traffic.Begin();
  Take();
  Give();
  ExpectCopied(Answer());
}

TEST_F(ShardTransfersTest, PacedPiecesWaitForTensors) {
  paced = true;
  line_bits_per_second = 20e3;  // a fiftieth of which takes 20 s for the smallest piece
  StageSnapshot small;
  small.step = kStep;
  small.parameters = {{"w", {10}, std::vector<float>(10, 0.5f)}};
  files_ = *source.store->Write(kRun, StageIndex(2), small);
  source.traffic.Begin();
  Take();
  Give();
  while (source.traffic.waiting() == 0) std::this_thread::yield();
  EXPECT_TRUE(source.answers.empty());
  source.traffic.End();
  ExpectCopied(Answer());
}

TEST_F(ShardTransfersTest, ADamagedFileIsFoundAndNotKept) {
  const std::string path = PathOf(source, files_[0]);
  std::string bytes = *ReadFile(path);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
  Take();
  Give();
  const v1::ShardsChecked answer = Answer();
  EXPECT_FALSE(answer.shards(0).copied());
  EXPECT_THAT(answer.shards(0).problem(), HasSubstr("its contents changed"));
  EXPECT_EQ(answer.shards(1).problem(), "");
  EXPECT_FALSE(std::filesystem::exists(PathOf(holder, files_[0])));
}

TEST_F(ShardTransfersTest, AMissingFileIsNamed) {
  ASSERT_EQ(::unlink(PathOf(source, files_[0]).c_str()), 0);
  Take();
  Give();
  EXPECT_THAT(Answer().shards(0).problem(), HasSubstr("it is missing"));
}

TEST_F(ShardTransfersTest, WhoIsNotThereIsNoDamage) {
  holder.transport.reset();
  holder.transport = *transport::loopback::CreateTransport({});
  v1::WorkerCommand command = Command();
  AddFiles(command.mutable_check_shards());
  command.mutable_check_shards()->set_copy(true);
  v1::ShardPath path = Path(true);
  path.set_limit_seconds(1);
  *command.mutable_check_shards()->mutable_to() = path;
  source.transfers->Handle(command);
  const v1::ShardsChecked answer = Answer();
  EXPECT_NE(answer.shards(0).copy_error(), "");
  EXPECT_EQ(answer.shards(0).problem(), "");
}

// The coordinator waits for an answer to what the older epoch asked for.
TEST_F(ShardTransfersTest, ANewerEpochEndsWhatAnOlderOneAskedFor) {
  Give();  // nobody takes
  v1::WorkerCommand newer = Command();
  newer.set_epoch(4);
  newer.mutable_check_shards()->set_check(8);
  *newer.mutable_check_shards()->mutable_to() = Path(true);
  source.transfers->Handle(newer);
  EXPECT_THAT(Answer().shards(0).copy_error(), HasSubstr("a newer epoch of the run has begun"));
}

TEST_F(ShardTransfersTest, AHolderKeepsNothingOfAnOlderEpoch) {
  Take();
  v1::WorkerCommand newer = Command();
  newer.set_epoch(4);
  newer.mutable_take_shards()->set_check(8);
  *newer.mutable_take_shards()->mutable_from() = Path(false);
  holder.transfers->Handle(newer);
  Give();
  EXPECT_NE(Answer().shards(0).copy_error(), "");
  EXPECT_FALSE(std::filesystem::exists(PathOf(holder, files_[0])));
}

TEST_F(ShardTransfersTest, AnEpochThatBeginsEndsWhatOlderOnesAskedForAlone) {
  Take();
  holder.transfers->EpochBegins(RunId("another"), Epoch(4));
  holder.transfers->EpochBegins(kRun, Epoch(3));
  Give();
  ExpectCopied(Answer());
  for (const ShardFile& file : files_) std::filesystem::remove(PathOf(holder, file));
  Take();
  holder.transfers->EpochBegins(kRun, Epoch(4));
  Give();
  EXPECT_NE(Answer().shards(0).copy_error(), "");
  EXPECT_FALSE(std::filesystem::exists(PathOf(holder, files_[0])));
}

TEST_F(ShardTransfersTest, ShutdownGivesUpWhatIsUnderWay) {
  Take();  // nobody dials
  holder.transfers->Shutdown();
  Take();
  EXPECT_FALSE(std::filesystem::exists(PathOf(holder, files_[0])));
}

}  // namespace
}  // namespace longhaul::worker
