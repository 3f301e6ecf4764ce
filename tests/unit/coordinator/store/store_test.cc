#include "coordinator/store/store.h"

#include <fmt/core.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "coordinator/store/sqlite.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::longhaul::testing::ExpectGolden;
using ::longhaul::testing::TempDir;

// As a run's row holds it. Every field, and a cell with what the split that wrote it says.
TEST(StoreTest, AManifestIsAsItAlwaysWas) {
  v1::CheckpointManifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_run_id("tiny-1");
  manifest.set_epoch(3);
  manifest.set_step(117);
  manifest.set_committed_unix_ms(1'700'000'000'003);
  v1::CheckpointFile& file = *manifest.add_files();
  file.set_name("stage-1.params.safetensors");
  file.set_bytes(1ull << 33);
  file.set_sha256(std::string(64, 'b'));
  file.set_stage(1);
  v1::ShardHolder& writer = *file.add_holders();
  writer.set_worker_id("7f3c");
  writer.set_worker_name("worker2");
  writer.set_problem("it is gone");
  file.add_holders();
  Cell cell;
  cell.id = {.replica = 0, .stage = 1};
  cell.worker = WorkerId("7f3c");
  cell.incarnation = Incarnation("1d2e");
  cell.worker_name = "worker2";
  cell.layers = {.first = 4, .count = 4};
  cell.roles = {.embedding = false, .head = true};
  cell.devices = {1};
  cell.setting = {.depth = 5, .activation_lead = 3, .threads = 2};
  cell.endpoints = {{.transport = "ucx", .addresses = {"10.77.0.2:41234"}}};
  cell.memory_bytes = 1ull << 34;
  cell.message_record_bytes = 17;
  cell.message_journal_bytes = 18;
  *manifest.add_cells() = ToProto(cell);
  ExpectGolden(GOLDEN_DIR, "checkpoint_manifest", kManifestFormat, manifest.SerializeAsString());
  manifest.set_microbatches(936);
  ExpectGolden(GOLDEN_DIR, "checkpoint_manifest,microbatches", kManifestFormat,
               manifest.SerializeAsString());
}

TEST(StoreTest, AnEmptyStoreHasNothing) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  EXPECT_TRUE(store->LoadRuns()->runs.empty());
  EXPECT_EQ(*store->NextEventSequence(), 1u);
  EXPECT_TRUE(store->Events("", 0, 10)->empty());
}

TEST(StoreTest, OnlyItsOwnerMayReadIt) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  ASSERT_TRUE(store->Apply({write::Run{FullRecord("tiny-1")}}).ok());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    using std::filesystem::perms;
    EXPECT_EQ(entry.status().permissions() & (perms::group_all | perms::others_all), perms::none)
        << entry.path();
    ++files;
  }
  EXPECT_GE(files, 2u);  // the database and its log
}

TEST(StoreTest, EveryRecordComesBackAfterReopening) {
  const TempDir folder;
  const RunRecord full = FullRecord("tiny-wan-abc123");
  RunRecord sparse = FullRecord("tiny-wan-000000");
  sparse.data.reset();
  sparse.plan.reset();
  sparse.data_files.clear();
  sparse.checkpoints.clear();
  sparse.reason.clear();
  sparse.spec.pipeline.stages.reset();
  {
    const auto store = OpenStore(folder.path());
    ASSERT_TRUE(store
                    ->Apply({write::Run{full}, write::Run{sparse}, EventOf(1, "r"), EventOf(2, "s"),
                             StepOf("r", 1, 5.5), LogOf("r", "hello")})
                    .ok());
  }
  const auto store = OpenStore(folder.path());
  const auto runs = store->LoadRuns();
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->runs.size(), 2u);
  ExpectEqual(runs->runs[0], full);
  ExpectEqual(runs->runs[1], sparse);
  EXPECT_EQ(*store->NextEventSequence(), 3u);

  const auto events = store->Events("s", 0, 10);
  ASSERT_EQ(events->size(), 1u);
  EXPECT_TRUE(MessageDifferencer::Equals((*events)[0], EventOf(2, "s").event));
  const auto steps = store->Steps(RunId("r"), 0, 10);
  ASSERT_EQ(steps->size(), 1u);
  EXPECT_TRUE(MessageDifferencer::Equals((*steps)[0], StepOf("r", 1, 5.5).step));
  const auto logs = store->Logs(RunId("r"), 0, 10);
  ASSERT_EQ(logs->size(), 1u);
  EXPECT_EQ((*logs)[0].worker_name(), "worker1");
  EXPECT_TRUE(MessageDifferencer::Equals((*logs)[0].line(), LogOf("r", "hello").line));
}

TEST(StoreTest, EveryStateOfARunComesBack) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  for (int i = 0; i <= static_cast<int>(RunState::kRecovering); ++i) {
    RunRecord record = FullRecord("one");
    record.state = static_cast<RunState>(i);
    record.ended_unix_ms = HasEnded(record.state) ? 1'700'000'000'003 : 0;
    ASSERT_TRUE(store->Apply({write::Run{record}}).ok());
    const auto runs = store->LoadRuns();
    ASSERT_TRUE(runs.ok()) << runs.status();
    ASSERT_EQ(runs->runs.size(), 1u);
    EXPECT_EQ(runs->runs[0].state, record.state);
  }
}

TEST(StoreTest, ARunKeepsItsPlaceWhenItChanges) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  for (const char* id : {"z", "a", "m"}) {
    ASSERT_TRUE(store->Apply({write::Run{FullRecord(id)}}).ok());
  }
  ASSERT_TRUE(store->Apply({write::Run{FullRecord("z")}}).ok());
  const auto runs = store->LoadRuns();
  ASSERT_EQ(runs->runs.size(), 3u);
  EXPECT_EQ(runs->runs[0].id.value(), "z");
  EXPECT_EQ(runs->runs[2].id.value(), "m");
}

TEST(StoreTest, ARunThatCannotBeReadIsSetAsideAndStaysAsItIs) {
  for (const auto& [change, what] : {std::pair{"plan=x'ffff'", "its plan cannot be read"},
                                     {"state='dancing'", "its state 'dancing' cannot be read"},
                                     {"spec_yaml='name: 7'", "its run file ("},
                                     {"checkpoints=x'00'", "its list of checkpoints cannot be"}}) {
    const TempDir folder;
    {
      const auto store = OpenStore(folder.path());
      for (const char* id : {"before", "bad", "after"}) {
        ASSERT_TRUE(store->Apply({write::Run{FullRecord(id)}}).ok());
      }
    }
    Sql(folder.path(), fmt::format("UPDATE runs SET {} WHERE id='bad'", change));
    const std::string before = RowOf(folder.path(), "bad");
    {
      const auto store = OpenStore(folder.path());
      const auto runs = store->LoadRuns();
      ASSERT_TRUE(runs.ok()) << runs.status();
      ASSERT_EQ(runs->runs.size(), 2u);
      ExpectEqual(runs->runs[0], FullRecord("before"));
      ExpectEqual(runs->runs[1], FullRecord("after"));
      ASSERT_EQ(runs->unreadable.size(), 1u);
      EXPECT_EQ(runs->unreadable[0].id, RunId("bad"));
      EXPECT_NE(runs->unreadable[0].problem.find(what), std::string::npos)
          << runs->unreadable[0].problem;
    }
    EXPECT_EQ(RowOf(folder.path(), "bad"), before);
  }
}

// So many that several threads parse their files.
TEST(StoreTest, ManyRunsComeInTheirOrder) {
  const TempDir folder;
  std::vector<Write> writes;
  std::vector<std::string> ids;
  for (int i = 0; i < 350; ++i) {
    ids.push_back("run" + std::to_string(i));
    writes.push_back(write::Run{FullRecord(ids.back())});
  }
  ASSERT_TRUE(OpenStore(folder.path())->Apply(writes).ok());
  Sql(folder.path(), "UPDATE runs SET spec_yaml='x' WHERE id IN ('run7', 'run201')");
  const auto runs = OpenStore(folder.path())->LoadRuns();
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->unreadable.size(), 2u);
  EXPECT_EQ(runs->unreadable[0].id, RunId("run7"));
  EXPECT_EQ(runs->unreadable[1].id, RunId("run201"));
  std::erase(ids, "run7");
  std::erase(ids, "run201");
  ASSERT_EQ(runs->runs.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ExpectEqual(runs->runs[i], FullRecord(ids[i]));
}

TEST(StoreTest, ReadersPageInOrder) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  std::vector<Write> writes;
  for (uint64_t i = 1; i <= 25; ++i) {
    writes.push_back(EventOf(i, i % 2 == 0 ? "even" : "odd"));
    writes.push_back(StepOf("even", i, static_cast<double>(i)));
  }
  ASSERT_TRUE(store->Apply(writes).ok());
  uint64_t after = 0, seen = 0;
  while (true) {
    const auto page = store->Events("", after, 10);
    ASSERT_TRUE(page.ok());
    if (page->empty()) break;
    EXPECT_LE(page->size(), 10u);
    for (const v1::Event& event : *page) EXPECT_EQ(event.sequence(), ++seen);
    after = page->back().sequence();
  }
  EXPECT_EQ(seen, 25u);
  EXPECT_EQ(store->Events("even", 4, 100)->size(), 10u);
  // The newest ones, in order, too.
  const auto newest = store->NewestEvents("odd", 19, 2);
  ASSERT_EQ(newest->size(), 2u);
  EXPECT_EQ((*newest)[0].sequence(), 23u);
  EXPECT_EQ((*newest)[1].sequence(), 25u);
  EXPECT_EQ(store->NewestEvents("", 0, 100)->size(), 25u);
  EXPECT_EQ(store->Steps(RunId("even"), 20, 3)->back().step(), 22u);
}

TEST(StoreTest, AStepDoneAgainReplacesTheOlderOne) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  ASSERT_TRUE(store->Apply({StepOf("r", 7, 1.0)}).ok());
  ASSERT_TRUE(store->Apply({StepOf("r", 7, 2.0)}).ok());
  const auto steps = store->Steps(RunId("r"), 0, 10);
  ASSERT_EQ(steps->size(), 1u);
  EXPECT_EQ((*steps)[0].loss(), 2.0);
}

TEST(StoreTest, StepsSinceTheOldestCheckpointComeWithARunThatGoesOn) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  RunRecord going = FullRecord("going"), ended = FullRecord("ended");
  ended.state = RunState::kDone;
  ended.ended_unix_ms = 1'700'000'000'003;
  ASSERT_TRUE(store->Apply({write::Run{going}, write::Run{ended}}).ok());
  for (const uint64_t step : {49, 50, 51, 100, 116, 118}) {
    ASSERT_TRUE(store->Apply({StepOf("going", step, 1.0), StepOf("ended", step, 1.0)}).ok());
  }
  const auto stored = store->LoadRuns();
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->steps.size(), 1u);
  std::vector<uint64_t> steps;
  for (const v1::StepRecord& row : stored->steps.at(going.id)) steps.push_back(row.step());
  EXPECT_EQ(steps, (std::vector<uint64_t>{50, 51, 100, 116, 118}));
}

TEST(StoreTest, AStepThatCannotBeReadKeepsNoRunFromGoingOn) {
  const TempDir folder;
  {
    const auto store = OpenStore(folder.path());
    ASSERT_TRUE(store->Apply({write::Run{FullRecord("r")}, StepOf("r", 60, 1.0)}).ok());
  }
  Sql(folder.path(), "UPDATE steps SET record=x'ff'");
  const auto stored = OpenStore(folder.path())->LoadRuns();
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->runs.size(), 1u);
  EXPECT_TRUE(stored->steps.at(RunId("r")).empty());
}

TEST(StoreTest, LogsAreBoundedPerRun) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  ASSERT_TRUE(store->Apply({LogOf("other", "stays")}).ok());
  std::vector<Write> writes;
  for (uint64_t i = 0; i < kKeptLogLines + 3'000; ++i) writes.push_back(LogOf("r", "x"));
  ASSERT_TRUE(store->Apply(writes).ok());
  const auto logs = store->Logs(RunId("r"), 0, 1'000'000);
  EXPECT_GE(logs->size(), kKeptLogLines);
  EXPECT_LT(logs->size(), kKeptLogLines + 1'001);
  EXPECT_EQ(logs->back().sequence(), kKeptLogLines + 3'001);  // the newest stay
  EXPECT_EQ(store->Logs(RunId("other"), 0, 10)->size(), 1u);
}

TEST(StoreTest, EventsAreBoundedPerRun) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  ASSERT_TRUE(store->Apply({EventOf(1, "other")}).ok());
  std::vector<Write> writes;
  for (uint64_t i = 2; i < kKeptEvents + 3'000; ++i) writes.push_back(EventOf(i, "r"));
  ASSERT_TRUE(store->Apply(writes).ok());
  const auto events = store->Events("r", 0, 1'000'000);
  EXPECT_GE(events->size(), kKeptEvents);
  EXPECT_LT(events->size(), kKeptEvents + 1'001);
  EXPECT_EQ(events->back().sequence(), kKeptEvents + 2'999);
  EXPECT_EQ(store->Events("other", 0, 10)->size(), 1u);
  EXPECT_EQ(*store->NextEventSequence(), kKeptEvents + 3'000);
}

TEST(StoreTest, ATransactionIsAllOrNothing) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  ASSERT_TRUE(store->Apply({EventOf(1, "r")}).ok());
  // The second event has a sequence number that is taken.
  EXPECT_FALSE(store->Apply({write::Run{FullRecord("r")}, EventOf(1, "r")}).ok());
  EXPECT_TRUE(store->LoadRuns()->runs.empty());
  EXPECT_TRUE(store->Apply({write::Run{FullRecord("r")}, EventOf(2, "r")}).ok());
  EXPECT_EQ(store->LoadRuns()->runs.size(), 1u);
}

// A process that is killed at any moment leaves whole transactions: run and event agree.
TEST(StoreTest, AKilledWriterLeavesWholeTransactions) {
  const TempDir folder;
  uint64_t before = 0;
  for (int round = 0; round < 5; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      StatusOr<std::unique_ptr<Store>> store = Store::Open(folder.path());
      if (!store.ok()) ::_exit(1);
      for (uint64_t i = *(*store)->NextEventSequence();; ++i) {
        RunRecord record = FullRecord("r");
        record.step = i;
        if (!(*store)->Apply({EventOf(i, "r"), write::Run{record}, StepOf("r", i, 1)}).ok()) {
          ::_exit(2);
        }
        if (::write(ready[1], "x", 1) != 1) ::_exit(3);
      }
    }
    ::close(ready[1]);
    char byte = 0;
    for (int i = 0; i < 10 + 7 * round; ++i) ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ::close(ready[0]);

    const auto store = OpenStore(folder.path());
    const auto runs = store->LoadRuns();
    ASSERT_TRUE(runs.ok()) << runs.status();
    ASSERT_EQ(runs->runs.size(), 1u);
    const uint64_t step = runs->runs[0].step;
    EXPECT_GE(step, before + 10);  // what was acknowledged is there
    EXPECT_EQ(*store->NextEventSequence(), step + 1);
    EXPECT_EQ(store->Steps(RunId("r"), step, 10)->size(), 1u);
    before = step;
  }
}

// SQLite itself makes files that everybody may read, with whatever secrets they get.
TEST(DatabaseTest, AFileIsPrivateFromItsFirstByte) {
  const mode_t before = ::umask(0);
  const TempDir folder;
  const std::string path = folder.path() + "/new.db";
  struct stat info {};
  {
    auto database =
        sqlite::Database::Open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE).value();
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_size, 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    ASSERT_TRUE(database.Execute("PRAGMA journal_mode=WAL; CREATE TABLE t(x)").ok());
    for (const char* suffix : {"", "-wal", "-shm"}) {
      ASSERT_EQ(::stat((path + suffix).c_str(), &info), 0) << suffix;
      EXPECT_EQ(info.st_mode & 0777, 0600u) << suffix;
    }
  }
  ::umask(before);
}

}  // namespace
}  // namespace longhaul::coordinator
