// Files go from a worker's store to an object store and back, in pieces.
#include "worker/shards/folder_courier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include "absl/synchronization/notification.h"
#include "tests/support/mailbox.h"
#include "tests/support/temp_dir.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Mailbox;
using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const RunId kCopiedRun("tiny-abc123");
constexpr uint64_t kCopiedStep = 50;
const char* const kFolder = "s3://bucket/tiny-abc123/step-00000050/";

// An object store in memory.
class FakeObjects final : public Objects {
 public:
  Status Write(const std::string& run, const std::string& address, std::span<const std::byte> bytes,
               Deadline, const GivenUp& given_up) override {
    if (gate != nullptr) {
      if (!begun.HasBeenNotified()) begun.Notify();
      while (!given_up() && !gate->WaitForNotificationWithTimeout(absl::Milliseconds(1))) continue;
      if (given_up()) return absl::CancelledError("given up");
    }
    const std::lock_guard lock(mutex);
    if (!failure.ok()) return failure;
    EXPECT_EQ(run, kCopiedRun.value());
    const auto text = reinterpret_cast<const char*>(bytes.data());
    all[address] = std::string(text, bytes.size());
    return absl::OkStatus();
  }
  Status Read(const std::string& run, const std::string& address, uint64_t bytes,
              const std::function<Status(std::span<const std::byte>)>& take, Deadline,
              const GivenUp&) override {
    const std::lock_guard lock(mutex);
    if (!failure.ok()) return failure;
    EXPECT_EQ(run, kCopiedRun.value());
    const auto found = all.find(address);
    if (found == all.end()) return NotFound("{} is not there", address);
    if (found->second.size() != bytes) return DataLoss("it has another length");
    return take(std::as_bytes(std::span(found->second)));
  }

  std::mutex mutex;
  std::map<std::string, std::string> all;
  Status failure;
  absl::Notification* gate = nullptr;  // writes wait for it
  absl::Notification begun;
};

class FolderCourierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    StageSnapshot snapshot;
    snapshot.step = kCopiedStep;
    snapshot.parameters = {{"w", {3000}, std::vector<float>(3000, 0.5f)}};
    auto files = source->Write(kCopiedRun, StageIndex(1), snapshot);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
  }
  template <class Body>
  void AddFiles(Body* body) const {
    body->set_check(7);
    body->set_step(kCopiedStep);
    for (const ShardFile& file : files_) {
      v1::CheckpointFile& one = *body->add_files();
      one.set_name(file.name);
      one.set_bytes(file.bytes);
      one.set_sha256(file.sha256);
    }
  }
  v1::StoredFolder Folder() const {
    v1::StoredFolder folder;
    folder.set_address(kFolder);
    folder.set_piece_bytes(piece_bytes);
    return folder;
  }
  v1::WorkerCommand WriteCommand() const {
    v1::WorkerCommand command;
    command.set_run_id(kCopiedRun.value());
    command.set_epoch(3);
    AddFiles(command.mutable_check_shards());
    command.mutable_check_shards()->set_copy(true);
    *command.mutable_check_shards()->mutable_to_folder() = Folder();
    return command;
  }
  v1::WorkerCommand FetchCommand() const {
    v1::WorkerCommand command;
    command.set_run_id(kCopiedRun.value());
    command.set_epoch(3);
    AddFiles(command.mutable_take_shards());
    *command.mutable_take_shards()->mutable_from_folder() = Folder();
    return command;
  }
  v1::ShardsChecked Do(ShardStore& store, const v1::WorkerCommand& command) {
    FolderCourier courier(&objects, &store,
                          [this](v1::WorkerMessage message) { answers.Push(std::move(message)); });
    courier.Handle(command);
    const v1::WorkerMessage message = answers.Take().value_or(v1::WorkerMessage());
    EXPECT_EQ(message.run_id(), kCopiedRun.value());
    EXPECT_EQ(message.shards_checked().check(), 7u);
    EXPECT_EQ(message.shards_checked().shards_size(), static_cast<int>(files_.size()));
    return message.shards_checked();
  }

  std::vector<v1::ShardState> ShardsOf(ShardStore& store, const v1::WorkerCommand& command) {
    const v1::ShardsChecked answer = Do(store, command);
    return {answer.shards().begin(), answer.shards().end()};
  }

  TempDir source_folder, holder_folder;
  std::unique_ptr<ShardStore> source = *ShardStore::OpenLocal(source_folder.path());
  std::unique_ptr<ShardStore> holder = *ShardStore::OpenLocal(holder_folder.path());
  FakeObjects objects;
  Mailbox<v1::WorkerMessage> answers;
  std::vector<ShardFile> files_;
  uint64_t piece_bytes = 5000;
};

TEST_F(FolderCourierTest, FilesGoThereInPiecesAndComeBack) {
  for (const v1::ShardState& shard : ShardsOf(*source, WriteCommand())) {
    EXPECT_TRUE(shard.copied()) << shard.copy_error();
  }
  size_t pieces = 0;
  for (const ShardFile& file : files_) pieces += (file.bytes + piece_bytes - 1) / piece_bytes;
  EXPECT_GT(pieces, files_.size());
  EXPECT_THAT(objects.all, SizeIs(pieces));
  for (const v1::ShardState& shard : ShardsOf(*holder, FetchCommand())) {
    EXPECT_TRUE(shard.copied()) << shard.problem() << shard.copy_error();
  }
  for (const ShardFile& file : files_)
    EXPECT_TRUE(holder->Check(kCopiedRun, Step(kCopiedStep), file).ok());
  // The answer was lost: nothing is fetched again.
  objects.all.clear();
  for (const v1::ShardState& shard : ShardsOf(*holder, FetchCommand())) {
    EXPECT_TRUE(shard.copied());
  }
}

TEST_F(FolderCourierTest, OtherBytesAreDamageAndNotKept) {
  Do(*source, WriteCommand());
  objects.all.begin()->second[100] ^= 1;
  int damaged = 0;
  for (const v1::ShardState& shard : ShardsOf(*holder, FetchCommand())) {
    EXPECT_EQ(shard.copied(), shard.problem().empty());
    if (shard.copied()) continue;
    ++damaged;
    EXPECT_THAT(shard.problem(), HasSubstr("SHA-256"));
  }
  EXPECT_EQ(damaged, 1);
  objects.all.erase(objects.all.begin());
  EXPECT_THAT(Do(*holder, FetchCommand()).DebugString(), HasSubstr("is not there"));
}

TEST_F(FolderCourierTest, AServerThatIsAwayIsNoDamage) {
  objects.failure = absl::UnavailableError("nobody answers");
  for (const v1::WorkerCommand& command : {WriteCommand(), FetchCommand()}) {
    for (const v1::ShardState& shard : ShardsOf(*holder, command)) {
      EXPECT_FALSE(shard.copied());
    }
  }
  for (const v1::ShardState& shard : ShardsOf(*holder, FetchCommand())) {
    EXPECT_EQ(shard.problem(), "");
    EXPECT_EQ(shard.copy_error(), "nobody answers");
  }
}

TEST_F(FolderCourierTest, ADamagedFileIsNotSent) {
  const std::string path =
      source->PathOf(kCopiedRun, Step(kCopiedStep), files_[0].name).value_or("");
  std::filesystem::resize_file(path, 10);
  const v1::ShardsChecked answer = Do(*source, WriteCommand());
  EXPECT_THAT(answer.shards(0).problem(), HasSubstr("cut short"));
  EXPECT_FALSE(answer.shards(0).copied());
  for (const auto& [address, bytes] : objects.all) {
    EXPECT_FALSE(address.starts_with(kFolder + files_[0].name)) << address;
  }
}

TEST_F(FolderCourierTest, ShutdownGivesUpWhatIsUnderWay) {
  absl::Notification never;
  objects.gate = &never;
  FolderCourier courier(&objects, source.get(),
                        [this](v1::WorkerMessage message) { answers.Push(std::move(message)); });
  courier.Handle(WriteCommand());
  objects.begun.WaitForNotification();
  courier.Handle(WriteCommand());  // the same one: it does nothing
  courier.Shutdown();
  courier.Handle(WriteCommand());
  EXPECT_TRUE(answers.empty());
}

}  // namespace
}  // namespace longhaul::worker
