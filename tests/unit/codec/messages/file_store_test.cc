// Message buffers on disk: what stays, what is undone, and what a killed process leaves.
#include "codec/messages/file_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"

namespace longhaul::codec {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSamples = 7;
constexpr size_t kRecordBytes = 4112;  // some pages are shared by two records

using Contents = std::map<uint64_t, std::string>;

Contents ContentsOf(const FileStore& store) {
  Contents contents;
  for (uint64_t sample = 0; sample < store.samples(); ++sample) {
    const auto record = store.Read(sample);
    if (record.empty()) continue;
    contents[sample] = {reinterpret_cast<const char*>(record.data()), record.size()};
  }
  return contents;
}

std::string RecordOf(uint64_t step, uint64_t sample, uint64_t visit) {
  std::string record(kRecordBytes, 'r');
  const std::string text = fmt::format("step {} sample {} visit {}", step, sample, visit);
  for (size_t k = 0; k < record.size(); ++k) record[k] = text[k % text.size()];
  return record;
}

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() {
    std::string pattern = (fs::temp_directory_path() / "file-store-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~FileStoreTest() override { fs::remove_all(folder_); }

  FileStoreOptions Options() const {
    return {.folder = folder_ + "/store",
            .identity = "run a, layer 4",
            .samples = kSamples,
            .record_bytes = kRecordBytes};
  }
  std::unique_ptr<FileStore> Open() const { return Open(Options()); }
  static std::unique_ptr<FileStore> Open(const FileStoreOptions& options) {
    auto store = FileStore::Open(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static bool MustRollBack(FileStore& store, uint64_t step) {
    const auto known = store.RollBack(Step(step));
    EXPECT_TRUE(known.ok()) << known.status();
    return known.ok() && *known;
  }
  // Three of the samples change in every step; one of them twice.
  static void RunStep(FileStore& store, uint64_t step) {
    for (uint64_t visit = 0; visit < 4; ++visit) {
      const uint64_t sample = (step * 3 + visit % 3) % kSamples;
      const auto record = store.Write(Step(step), sample);
      ASSERT_TRUE(record.ok()) << record.status();
      const std::string text = RecordOf(step, sample, visit);
      std::memcpy(record->data(), text.data(), text.size());
    }
  }
  // What a process that runs steps 1 to `last` without harm has after each of them.
  std::vector<Contents> Unharmed(uint64_t last) const {
    FileStoreOptions options = Options();
    options.folder = folder_ + "/unharmed";
    const auto store = Open(options);
    std::vector<Contents> after = {ContentsOf(*store)};
    for (uint64_t step = 1; step <= last; ++step) {
      RunStep(*store, step);
      after.push_back(ContentsOf(*store));
    }
    fs::remove_all(options.folder);
    return after;
  }

  std::string folder_;
};

TEST_F(FileStoreTest, KeepsWhatWasWrittenAndTakesTheDiskThatItSays) {
  Contents contents;
  {
    const auto store = Open();
    EXPECT_TRUE(MustRollBack(*store, 0));
    EXPECT_EQ(store->Digest(), 0u);
    EXPECT_TRUE(store->Read(3).empty());
    RunStep(*store, 1);
    contents = ContentsOf(*store);
    EXPECT_EQ(contents.size(), 3u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(store->Read(contents.begin()->first).data()) % 16, 0u);
    const std::vector<uint64_t> all = {0, 1, 2, 3, 4, 5, 6, 99};
    store->Prefetch(all);
  }
  EXPECT_EQ(fs::file_size(folder_ + "/store/records"),
            FileStore::FileBytes(kSamples, kRecordBytes));
  const auto store = Open();
  EXPECT_TRUE(MustRollBack(*store, 1));
  EXPECT_EQ(ContentsOf(*store), contents);
}

TEST_F(FileStoreTest, RollsBackToAnyStepSinceThatWasNotForgotten) {
  const std::vector<Contents> after = Unharmed(9);
  for (uint64_t target = 0; target <= 9; ++target) {
    fs::remove_all(folder_ + "/store");
    {
      const auto store = Open();
      for (uint64_t step = 1; step <= 9; ++step) RunStep(*store, step);
      store->Forget(Step(3));
    }
    const auto store = Open();
    const bool known = target == 0 || target >= 3;
    EXPECT_EQ(MustRollBack(*store, target), known) << target;
    EXPECT_EQ(ContentsOf(*store), known ? after[target] : Contents()) << target;
    // And it goes on from there.
    for (uint64_t step = target + 1; step <= 9; ++step) RunStep(*store, step);
    if (known) {
      EXPECT_EQ(ContentsOf(*store), after[9]) << target;
    }
  }
}

TEST_F(FileStoreTest, DoesNotRollForward) {
  {
    const auto store = Open();
    RunStep(*store, 1);
  }
  const auto store = Open();
  EXPECT_FALSE(MustRollBack(*store, 2));
  EXPECT_TRUE(ContentsOf(*store).empty());
}

TEST_F(FileStoreTest, OtherRecordsAreNotItsOwn) {
  for (const auto& change : std::vector<std::function<void(FileStoreOptions&)>>{
           [](FileStoreOptions& options) { options.identity = "run b, layer 4"; },
           [](FileStoreOptions& options) { options.samples = 8; },
           [](FileStoreOptions& options) { options.record_bytes = 4128; }}) {
    fs::remove_all(folder_ + "/store");
    {
      const auto store = Open();
      RunStep(*store, 1);
    }
    FileStoreOptions options = Options();
    change(options);
    const auto store = Open(options);
    EXPECT_FALSE(MustRollBack(*store, 1));
    EXPECT_TRUE(ContentsOf(*store).empty());
    EXPECT_EQ(store->Digest(), 0u);
  }
}

TEST_F(FileStoreTest, DamagedJournalsAreNotUsed) {
  {
    const auto store = Open();
    for (uint64_t step = 1; step <= 4; ++step) RunStep(*store, step);
  }
  const std::string journal = folder_ + "/store/undo-0000000000000004";
  ASSERT_TRUE(fs::exists(journal));
  FILE* file = std::fopen(journal.c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  std::fseek(file, 100, SEEK_SET);
  std::fputc('!', file);
  std::fclose(file);
  const auto store = Open();
  EXPECT_FALSE(MustRollBack(*store, 3));
  EXPECT_TRUE(ContentsOf(*store).empty());
}

TEST_F(FileStoreTest, TheDigestTellsContentsAndSamplesApart) {
  const auto store = Open();
  const auto write = [&](uint64_t sample, const std::string& text) {
    const auto record = store->Write(Step(1), sample);
    ASSERT_TRUE(record.ok());
    std::memcpy(record->data(), text.data(), text.size());
  };
  write(1, RecordOf(1, 1, 1));
  const uint64_t one = store->Digest();
  write(2, RecordOf(1, 2, 1));
  const uint64_t two = store->Digest();
  write(1, RecordOf(1, 2, 1));
  write(2, RecordOf(1, 1, 1));
  const uint64_t swapped = store->Digest();
  EXPECT_EQ(std::set<uint64_t>({0, one, two, swapped}).size(), 4u);
}

TEST_F(FileStoreTest, StepsGoForward) {
  const auto store = Open();
  RunStep(*store, 2);
  EXPECT_EQ(store->Write(Step(1), 0).status().code(), absl::StatusCode::kInvalidArgument);
}

// Runs `work` in a process of its own that ends, as by SIGKILL, at its `at`-th kill point. False
// when it came to its end before.
bool KilledAt(int at, const FileStoreOptions& options,
              const std::function<void(FileStore&, const std::function<void()>&)>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int left = at;
    const auto kill_point = [&left] {
      if (left-- == 0) ::_exit(9);
    };
    FileStoreOptions killed = options;
    killed.at_kill_point = kill_point;
    auto store = FileStore::Open(killed);
    if (!store.ok()) ::_exit(1);
    work(**store, kill_point);
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 9));
  return WEXITSTATUS(status) == 9;
}

void WriteInHalves(FileStore& store, uint64_t step, uint64_t sample, uint64_t visit,
                   const std::function<void()>& kill_point) {
  const auto record = store.Write(Step(step), sample);
  if (!record.ok()) ::_exit(2);
  const std::string text = RecordOf(step, sample, visit);
  std::memcpy(record->data(), text.data(), text.size() / 2);
  kill_point();
  std::memcpy(record->data() + text.size() / 2, text.data() + text.size() / 2,
              text.size() - text.size() / 2);
  kill_point();
}

TEST_F(FileStoreTest, AKillAtEveryPointIsUndone) {
  const std::vector<Contents> after = Unharmed(4);
  const auto work = [](FileStore& store, const std::function<void()>& kill_point) {
    if (!store.RollBack(Step(4)).ok()) ::_exit(3);
    for (uint64_t step = 5; step <= 6; ++step) {
      for (uint64_t visit = 0; visit < 4; ++visit) {
        WriteInHalves(store, step, (step * 3 + visit % 3) % kSamples, visit, kill_point);
      }
    }
    // A second resume on the way.
    if (!store.RollBack(Step(4)).ok()) ::_exit(3);
  };
  int kills = 0;
  for (bool killed = true; killed; ++kills) {
    fs::remove_all(folder_ + "/store");
    {
      const auto store = Open();
      for (uint64_t step = 1; step <= 4; ++step) RunStep(*store, step);
    }
    killed = KilledAt(kills, Options(), work);
    const auto store = Open();
    EXPECT_TRUE(MustRollBack(*store, 4)) << "kill point " << kills;
    ASSERT_EQ(ContentsOf(*store), after[4]) << "kill point " << kills;
    // And to an older checkpoint.
    EXPECT_TRUE(MustRollBack(*store, 2)) << "kill point " << kills;
    ASSERT_EQ(ContentsOf(*store), after[2]) << "kill point " << kills;
  }
  EXPECT_GT(kills, 50);
}

TEST_F(FileStoreTest, AKillWhileItIsMadeOrClearedLeavesNothingToRead) {
  for (const bool made_before : {false, true}) {
    int kills = 0;
    for (bool killed = true; killed; ++kills) {
      fs::remove_all(folder_ + "/store");
      if (made_before) {
        const auto store = Open();
        for (uint64_t step = 1; step <= 3; ++step) RunStep(*store, step);
        store->Forget(Step(2));
      }
      // Its journal does not reach back to step 1.
      killed = KilledAt(kills, Options(), [](FileStore& store, const std::function<void()>&) {
        if (!store.RollBack(Step(1)).ok()) ::_exit(3);
      });
      const auto store = Open();
      MustRollBack(*store, 1);
      EXPECT_TRUE(ContentsOf(*store).empty()) << kills;
    }
    EXPECT_GT(kills, 3);
  }
}

TEST_F(FileStoreTest, AJournalEntryThatWasCutShortIsNone) {
  const std::vector<Contents> after = Unharmed(2);
  std::string entries;
  {
    const auto store = Open();
    for (uint64_t step = 1; step <= 2; ++step) RunStep(*store, step);
    const auto journal = ReadFile(folder_ + "/store/undo-0000000000000002");
    ASSERT_TRUE(journal.ok());
    entries = journal->substr(32);
  }
  // As a process leaves it that is killed while it writes an entry, or the file's header.
  for (const uint64_t step : {uint64_t{2}, uint64_t{3}}) {
    for (const size_t part : {size_t{1}, size_t{15}, size_t{16}, size_t{23}}) {
      fs::copy(folder_ + "/store", folder_ + "/killed", fs::copy_options::recursive);
      FileStoreOptions options = Options();
      options.folder = folder_ + "/killed";
      FILE* file = std::fopen(fmt::format("{}/undo-{:016}", options.folder, step).c_str(), "ab");
      ASSERT_NE(file, nullptr);
      ASSERT_EQ(std::fwrite(entries.data(), 1, part, file), part);
      std::fclose(file);
      const auto store = Open(options);
      EXPECT_TRUE(MustRollBack(*store, 1));
      EXPECT_EQ(ContentsOf(*store), after[1]);
      fs::remove_all(options.folder);
    }
  }
}

TEST_F(FileStoreTest, RefusesSizesThatNoDiskHas) {
  FileStoreOptions options = Options();
  options.samples = uint64_t{1} << 40;
  options.record_bytes = size_t{1} << 21;
  const auto store = FileStore::Open(options);
  ASSERT_FALSE(store.ok());
  EXPECT_FALSE(fs::exists(options.folder + "/records"));
  options.samples = 0;
  EXPECT_EQ(FileStore::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::codec
