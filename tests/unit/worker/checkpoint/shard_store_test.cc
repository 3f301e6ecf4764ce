#include "worker/checkpoint/shard_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace longhaul::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const RunId kRun("tiny-wan-k3x9qd");

NamedArray Array(const std::string& name, int64_t size, float first) {
  NamedArray array{name, {size}, {}};
  for (int64_t i = 0; i < size; ++i) array.values.push_back(first + static_cast<float>(i));
  return array;
}

StageSnapshot Snapshot(uint64_t step, const std::string& name, float first = 1,
                       int64_t size = 100) {
  return {step,
          {Array(name, size, first)},
          {Array(name + ".exp_avg", size, -first), Array(name + ".exp_avg_sq", size, 2 * first)}};
}

void ExpectEqual(const std::vector<NamedArray>& a, const std::vector<NamedArray>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].shape, b[i].shape);
    EXPECT_EQ(a[i].values, b[i].values);
  }
}

class ShardStoreTest : public ::testing::Test {
 protected:
  ShardStoreTest() : root_(::testing::TempDir() + "longhaul-shards-" + RandomUuid()) { Open(); }
  ~ShardStoreTest() override { fs::remove_all(root_); }

  void Open() {
    auto store = ShardStore::OpenLocal(root_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  std::vector<ShardFile> Write(const ShardOwner& owner, const StageSnapshot& snapshot) {
    auto files = store_->Write(kRun, owner, snapshot);
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *std::move(files) : std::vector<ShardFile>();
  }
  std::string Path(const std::string& name, const std::string& step = "step-00000050") const {
    return root_ + "/" + kRun.value() + "/" + step + "/" + name;
  }
  std::string Error(const std::vector<ShardFile>& files, absl::StatusCode code,
                    Step step = Step(50)) const {
    const auto read = store_->Read(kRun, step, files);
    EXPECT_EQ(read.status().code(), code) << read.status();
    return std::string(Message(read.status()));
  }

  const std::string root_;
  std::unique_ptr<ShardStore> store_;
};

TEST_F(ShardStoreTest, ReadsWhatAStageWrote) {
  const StageSnapshot snapshot = Snapshot(50, "wte");
  const std::vector<ShardFile> files = Write(StageIndex(1), snapshot);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "stage-1.params.safetensors");
  EXPECT_EQ(files[1].name, "stage-1.optim.safetensors");
  for (const ShardFile& file : files) {
    EXPECT_EQ(fs::file_size(Path(file.name)), file.bytes);
    EXPECT_EQ(Sha256HexOfFile(Path(file.name)).value(), file.sha256);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(Path("")), fs::directory_iterator()), 2);
  const auto read = store_->Read(kRun, Step(50), files);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, 50u);
  ExpectEqual(read->parameters, snapshot.parameters);
  ExpectEqual(read->moments, snapshot.moments);
}

TEST_F(ShardStoreTest, MergesTheShardsOfSeveralStages) {
  std::vector<ShardFile> files = Write(StageIndex(0), Snapshot(50, "wte"));
  for (const ShardFile& file : Write(StageIndex(1), Snapshot(50, "lm_head.weight"))) {
    files.push_back(file);
  }
  const auto read = store_->Read(kRun, Step(50), files);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->parameters.size(), 2u);
  EXPECT_EQ(read->moments.size(), 4u);
}

TEST_F(ShardStoreTest, NamesTheFileThatIsMissingOrDamaged) {
  const std::vector<ShardFile> files = Write(StageIndex(0), Snapshot(50, "wte"));
  const std::string path = Path(files[1].name);
  const std::string good = ReadFile(path).value();
  std::string damaged = good;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  ASSERT_TRUE(WriteFileAtomic(path, damaged).ok());
  EXPECT_THAT(Error(files, absl::StatusCode::kDataLoss),
              HasSubstr("stage-0.optim.safetensors: its contents changed: expected SHA-256"));
  EXPECT_EQ(store_->Check(kRun, Step(50), files[1]).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(store_->Check(kRun, Step(50), files[0]).ok());
  ASSERT_TRUE(WriteFileAtomic(path, good.substr(1)).ok());
  EXPECT_THAT(Error(files, absl::StatusCode::kDataLoss),
              HasSubstr(fmt::format("it was cut short: expected {} bytes, it has {}", good.size(),
                                    good.size() - 1)));
  ASSERT_TRUE(WriteFileAtomic(path, good + "x").ok());
  EXPECT_THAT(Error(files, absl::StatusCode::kDataLoss), HasSubstr("it has grown"));
  ASSERT_TRUE(fs::remove(path));
  EXPECT_THAT(Error(files, absl::StatusCode::kNotFound), HasSubstr("stage-0.optim.safetensors"));
  ASSERT_TRUE(fs::create_directory(path));
  EXPECT_FALSE(store_->Check(kRun, Step(50), files[1]).ok());
}

// An absent disk says nothing of what is on it.
TEST_F(ShardStoreTest, TellsAnAbsentDiskFromAMissingFile) {
  const std::vector<ShardFile> files = Write(StageIndex(0), Snapshot(50, "wte"));
  fs::remove_all(fs::path(Path("")));
  EXPECT_EQ(store_->Check(kRun, Step(50), files[0]).code(), absl::StatusCode::kNotFound);
  fs::rename(root_, root_ + "-elsewhere");
  const Status absent = store_->Check(kRun, Step(50), files[0]);
  EXPECT_EQ(absent.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(absent)), HasSubstr("is its disk mounted?"));
  fs::rename(root_ + "-elsewhere", root_);
}

TEST_F(ShardStoreTest, ReadsCopiesFromWhereTheyAre) {
  std::vector<ShardFile> files = Write(StageIndex(3), Snapshot(50, "wte"));
  for (ShardFile& file : files) {
    file.path = root_ + "/" + file.sha256;
    fs::rename(Path(file.name), file.path);
  }
  const auto read = store_->Read(kRun, Step(50), files);
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectEqual(read->parameters, Snapshot(50, "wte").parameters);
  ASSERT_TRUE(fs::remove(files[0].path));
  EXPECT_THAT(Error(files, absl::StatusCode::kNotFound),
              HasSubstr(files[0].path + ": it is missing"));
}

TEST_F(ShardStoreTest, RefusesFilesOfAnotherRunStepOrStage) {
  const std::vector<ShardFile> files = Write(StageIndex(0), Snapshot(50, "wte"));
  fs::create_directories(fs::path(Path("", "step-00000051")));
  for (const ShardFile& file : files) {
    fs::copy(Path(file.name), Path(file.name, "step-00000051"));
  }
  EXPECT_THAT(Error(files, absl::StatusCode::kFailedPrecondition, Step(51)),
              HasSubstr("expected step '51', it has '50'"));
}

// A tied model's first and last stage both have its matrix.
TEST_F(ShardStoreTest, TakesAnArrayOfTwoFilesOnceWhereTheyAgree) {
  std::vector<ShardFile> files = Write(StageIndex(0), Snapshot(50, "wte"));
  for (const ShardFile& file : Write(StageIndex(1), Snapshot(50, "wte"))) files.push_back(file);
  const auto read = store_->Read(kRun, Step(50), files);
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectEqual(read->parameters, Snapshot(50, "wte").parameters);
  ExpectEqual(read->moments, Snapshot(50, "wte").moments);
  StageSnapshot other = Snapshot(50, "wte");
  other.parameters.front().values.back() += 1;
  for (const ShardFile& file : Write(StageIndex(2), other)) files.push_back(file);
  EXPECT_THAT(Error(files, absl::StatusCode::kFailedPrecondition),
              HasSubstr("wte stands in another file of this checkpoint, too, with other values"));
}

TEST_F(ShardStoreTest, NamesFromAManifestCannotLeaveTheFolder) {
  for (const char* name : {"../../secret", "/etc/passwd", "..", ".hidden", "", "a/b"}) {
    ShardFile file{name, 1, std::string(64, '0')};
    EXPECT_THAT(Error({file}, absl::StatusCode::kInvalidArgument), HasSubstr("a shard's name"));
    EXPECT_EQ(store_->Drop(RunId(name), Step(1)).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(store_->Write(RunId(name), StageIndex(0), Snapshot(1, "w")).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(ShardStoreTest, DropDeletesOneStep) {
  const std::vector<ShardFile> old = Write(StageIndex(0), Snapshot(50, "wte"));
  Write(StageIndex(0), Snapshot(100, "wte"));
  EXPECT_TRUE(store_->Drop(kRun, Step(100)).ok());
  EXPECT_TRUE(store_->Drop(kRun, Step(100)).ok());
  EXPECT_TRUE(store_->Drop(RunId("never-seen"), Step(1)).ok());
  EXPECT_FALSE(fs::exists(Path("", "step-00000100")));
  EXPECT_TRUE(store_->Read(kRun, Step(50), old).ok());
}

TEST_F(ShardStoreTest, KnowsTheOldestStep) {
  EXPECT_EQ(*store_->Oldest(kRun), std::nullopt);
  Write(StageIndex(0), Snapshot(100, "wte"));
  Write(StageIndex(0), Snapshot(50, "wte"));
  fs::create_directories(Path("", "step-notes"));
  EXPECT_EQ(*store_->Oldest(kRun), Step(50));
  EXPECT_TRUE(store_->Drop(kRun, Step(50)).ok());
  EXPECT_EQ(*store_->Oldest(kRun), Step(100));
  EXPECT_EQ(*store_->Oldest(RunId("never-seen")), std::nullopt);
  EXPECT_FALSE(store_->Oldest(RunId("../x")).ok());
}

TEST_F(ShardStoreTest, WhatIsNotKeptGoesButNotWhatIsNewer) {
  for (const uint64_t step : {10, 20, 30, 40}) Write(StageIndex(0), Snapshot(step, "wte"));
  ASSERT_TRUE(store_->DropOthers(kRun, {Step(20), Step(30)}).ok());
  EXPECT_EQ(*store_->Oldest(kRun), Step(20));
  ASSERT_TRUE(store_->DropOthers(kRun, {}).ok());
  ASSERT_TRUE(store_->Drop(kRun, Step(20)).ok());
  ASSERT_TRUE(store_->Drop(kRun, Step(30)).ok());
  EXPECT_EQ(*store_->Oldest(kRun), Step(40)) << "of which nobody has heard yet";
  EXPECT_FALSE(store_->DropOthers(RunId("../x"), {Step(1)}).ok());
}

TEST_F(ShardStoreTest, ARunThatIsRemovedLeavesNothing) {
  for (const uint64_t step : {10, 20}) Write(StageIndex(0), Snapshot(step, "wte"));
  ASSERT_TRUE(store_->DropRun(RunId("another")).ok());
  EXPECT_EQ(*store_->Oldest(kRun), Step(10));
  ASSERT_TRUE(store_->DropRun(kRun).ok());
  EXPECT_FALSE(fs::exists(root_ + "/" + kRun.value()));
  for (const char* bad : {"../x", "", "."}) EXPECT_FALSE(store_->DropRun(RunId(bad)).ok()) << bad;
}

TEST_F(ShardStoreTest, WritingAStepAgainReplacesIt) {
  Write(StageIndex(0), Snapshot(50, "wte", 1));
  const StageSnapshot newer = Snapshot(50, "wte", 7);
  const auto read = store_->Read(kRun, Step(50), Write(StageIndex(0), newer));
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectEqual(read->parameters, newer.parameters);
}

TEST_F(ShardStoreTest, OpeningDeletesWhatAKilledProcessLeft) {
  const std::vector<ShardFile> files = Write(StageIndex(0), Snapshot(50, "wte"));
  const std::string left = Path("stage-1.params.safetensors.tmp-" + RandomUuid());
  ASSERT_TRUE(WriteFileAtomic(left, "half").ok());
  Open();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(store_->Read(kRun, Step(50), files).ok());
}

// A limit on a file's size stands for the full disk: the same call fails, with another errno.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(ShardStoreTest, AFullDiskIsASentenceAndHarmsNoOlderCheckpoint) {
  const StageSnapshot small = Snapshot(50, "wte", 1, 2000);
  const std::vector<ShardFile> files = Write(StageIndex(0), small);
  {
    const FileSizeLimit limit(10'000);  // The parameters fit, the moments do not.
    for (const uint64_t step : {50, 100}) {
      const auto written = store_->Write(kRun, StageIndex(0), Snapshot(step, "wte", 9, 2000));
      EXPECT_EQ(written.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(Message(written.status())),
                  HasSubstr("no room for the checkpoint of step " + std::to_string(step)));
      EXPECT_THAT(std::string(Message(written.status())), HasSubstr("checkpoint.keep"));
    }
  }
  EXPECT_FALSE(fs::exists(Path("", "step-00000100")));
  EXPECT_EQ(std::distance(fs::directory_iterator(Path("")), fs::directory_iterator()), 2);
  const auto read = store_->Read(kRun, Step(50), files);
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectEqual(read->parameters, small.parameters);
}

}  // namespace
}  // namespace longhaul::worker
