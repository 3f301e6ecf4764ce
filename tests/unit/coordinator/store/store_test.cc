#include "coordinator/store/store.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "longhaul/v1/store1.pb.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

RunRecord FullRecord(const std::string& id) {
  RunRecord record;
  record.id = RunId(id);
  record.spec.name = "tiny-wan";
  record.spec.model = {.layers = 8, .hidden = 256, .heads = 8, .context = 128};
  record.spec.data.text = {"corpus/*.txt", "more text.txt"};
  record.spec.train.steps = 200;
  record.spec.train.microbatches = 16;
  record.spec.train.optimizer.lr = 3.3e-4;
  record.spec.pipeline.stages = 4;
  record.spec.links.codecs = {"tah:p=0.7", "fixed:bits=6"};
  record.spec.peer_timeout = absl::Seconds(7);
  record.data_files.resize(2);
  record.data_files[0].set_name("a.txt");
  record.data_files[0].set_sha256(std::string(64, 'a'));
  record.data_files[1].set_bytes(1ull << 40);
  record.state = RunState::kFinishing;
  record.reason = "waits; \"quoted\" \xc3\xa9";
  record.epoch = Epoch(3);
  record.link_secret = std::string("\0\x01\xff", 3) + std::string(29, 'x');
  record.data.emplace().set_tokens(12345);
  record.plan.emplace().set_explanation("because");
  record.plan->add_stages()->set_worker_name("worker1");
  record.checkpoints.resize(2);
  record.checkpoints[0].set_step(50);
  record.checkpoints[1].set_step(100);
  record.checkpoints[1].add_files()->set_name("stage-0.params.safetensors");
  record.step = 117;
  record.submitted_unix_ms = 1'700'000'000'001;
  record.started_unix_ms = 1'700'000'000'002;
  record.ended_unix_ms = 1'700'000'000'003;
  return record;
}

void ExpectEqual(const RunRecord& a, const RunRecord& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(ToYaml(a.spec), ToYaml(b.spec));
  ASSERT_EQ(a.data_files.size(), b.data_files.size());
  for (size_t i = 0; i < a.data_files.size(); ++i) {
    EXPECT_TRUE(MessageDifferencer::Equals(a.data_files[i], b.data_files[i]));
  }
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.reason, b.reason);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.link_secret, b.link_secret);
  ASSERT_EQ(a.data.has_value(), b.data.has_value());
  if (a.data) {
    EXPECT_TRUE(MessageDifferencer::Equals(*a.data, *b.data));
  }
  ASSERT_EQ(a.plan.has_value(), b.plan.has_value());
  if (a.plan) {
    EXPECT_TRUE(MessageDifferencer::Equals(*a.plan, *b.plan));
  }
  ASSERT_EQ(a.checkpoints.size(), b.checkpoints.size());
  for (size_t i = 0; i < a.checkpoints.size(); ++i) {
    EXPECT_TRUE(MessageDifferencer::Equals(a.checkpoints[i], b.checkpoints[i]));
  }
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.submitted_unix_ms, b.submitted_unix_ms);
  EXPECT_EQ(a.started_unix_ms, b.started_unix_ms);
  EXPECT_EQ(a.ended_unix_ms, b.ended_unix_ms);
}

write::LogEvent EventOf(uint64_t sequence, const std::string& run) {
  v1::Event event;
  event.set_sequence(sequence);
  event.set_unix_ms(1000 + static_cast<int64_t>(sequence));
  event.set_run_id(run);
  event.set_epoch(2);
  event.set_kind("state");
  event.set_text(fmt::format("event {}", sequence));
  return {event};
}

write::StepDone StepOf(const std::string& run, uint64_t step, double loss) {
  v1::StepRecord record;
  record.set_step(step);
  record.set_loss(loss);
  record.set_link_bytes(1ull << 35);
  return {RunId(run), record};
}

write::WorkerLog LogOf(const std::string& run, const std::string& text) {
  v1::LogLine line;
  line.set_unix_ms(77);
  line.set_level("info");
  line.set_text(text);
  return {RunId(run), "worker1", line};
}

std::unique_ptr<Store> OpenStore(const std::string& folder) {
  StatusOr<std::unique_ptr<Store>> store = Store::Open(folder);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

// Every file of a folder but SQLite's shared-memory index, which holds no data.
std::map<std::string, std::string> Contents(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".db") {
      contents[entry.path().filename()] = *ReadFile(entry.path());
    }
  }
  return contents;
}

void Sql(const std::string& folder, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((folder + "/store.db").c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(database);
  sqlite3_close(database);
}

TEST(StoreTest, AnEmptyStoreHasNothing) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  EXPECT_TRUE(store->LoadRuns()->empty());
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
  ASSERT_EQ(runs->size(), 2u);
  ExpectEqual((*runs)[0], full);
  ExpectEqual((*runs)[1], sparse);
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
    ASSERT_TRUE(store->Apply({write::Run{record}}).ok());
    const auto runs = store->LoadRuns();
    ASSERT_TRUE(runs.ok()) << runs.status();
    ASSERT_EQ(runs->size(), 1u);
    EXPECT_EQ((*runs)[0].state, record.state);
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
  ASSERT_EQ(runs->size(), 3u);
  EXPECT_EQ((*runs)[0].id.value(), "z");
  EXPECT_EQ((*runs)[2].id.value(), "m");
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
  EXPECT_EQ(store->Steps(RunId("even"), 20, 3)->back().step(), 23u);
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
  EXPECT_TRUE(store->LoadRuns()->empty());
  EXPECT_TRUE(store->Apply({write::Run{FullRecord("r")}, EventOf(2, "r")}).ok());
  EXPECT_EQ(store->LoadRuns()->size(), 1u);
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
    ASSERT_EQ(runs->size(), 1u);
    const uint64_t step = (*runs)[0].step;
    EXPECT_GE(step, before + 10);  // what was acknowledged is there
    EXPECT_EQ(*store->NextEventSequence(), step + 1);
    EXPECT_EQ(store->Steps(RunId("r"), step - 1, 10)->size(), 1u);
    before = step;
  }
}

class RefusalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto store = OpenStore(folder_.path());
    std::vector<Write> writes = {write::Run{FullRecord("r")}};
    for (uint64_t i = 1; i < 500; ++i) writes.push_back(EventOf(i, "r"));
    ASSERT_TRUE(store->Apply(writes).ok());
  }
  std::string path() const { return folder_.path() + "/store.db"; }

  void ExpectRefused(absl::StatusCode code, const std::string& words) {
    const auto before = Contents(folder_.path());
    const auto store = Store::Open(folder_.path());
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.status().code(), code) << store.status();
    EXPECT_THAT(std::string(Message(store.status())), HasSubstr(words));
    EXPECT_THAT(std::string(Message(store.status())), HasSubstr(path()));
    EXPECT_EQ(Contents(folder_.path()), before);
  }

  TempDir folder_;
};

TEST_F(RefusalTest, NewerSchema) {
  Sql(folder_.path(), "PRAGMA user_version=3");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has schema version 3");
}

TEST_F(RefusalTest, SchemaOfNoVersion) {
  Sql(folder_.path(), "PRAGMA user_version=0");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has schema version 0");
}

TEST_F(RefusalTest, OlderSchemaThatCannotBeUpgraded) {
  Sql(folder_.path(), "UPDATE runs SET plan = x'ffff'; PRAGMA user_version=1");
  ExpectRefused(absl::StatusCode::kDataLoss, "run r: its plan cannot be read");
}

// As version 1 wrote it: a stage's addresses were texts where its endpoints are now.
template <class Old, class New>
std::string InVersion1(const New& message) {
  New without = message;
  for (v1::StagePlan& stage : *without.mutable_stages()) stage.clear_endpoints();
  Old old;
  EXPECT_TRUE(old.ParseFromString(without.SerializeAsString()));
  for (int i = 0; i < message.stages_size(); ++i) {
    for (const v1::DataEndpoint& endpoint : message.stages(i).endpoints()) {
      for (const std::string& address : endpoint.addresses()) {
        old.mutable_stages(i)->add_data_addresses(address);
      }
    }
  }
  return old.SerializeAsString();
}

TEST(UpgradeTest, AStoreOfVersion1Opens) {
  TempDir folder;
  RunRecord record = FullRecord("r");
  const auto add_endpoint = [](v1::StagePlan* stage) {
    v1::DataEndpoint& endpoint = *stage->add_endpoints();
    endpoint.set_transport("ucx");
    endpoint.add_addresses("10.77.0.2:41234");
    endpoint.add_addresses("192.0.2.7:1");
  };
  add_endpoint(record.plan->mutable_stages(0));
  record.checkpoints.resize(1);
  add_endpoint(record.checkpoints[0].add_stages());
  {
    const auto store = OpenStore(folder.path());
    ASSERT_TRUE(store->Apply({write::Run{record}, write::Run{FullRecord("other")}}).ok());
  }
  const std::string plan = InVersion1<v1::Store1Plan>(*record.plan);
  const std::string manifest = InVersion1<v1::Store1CheckpointManifest>(record.checkpoints[0]);
  ASSERT_LT(manifest.size(), 128u);  // its length is one byte
  const auto hex = [](std::string_view bytes) {
    std::string digits;
    for (const char byte : bytes) digits += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    return digits;
  };
  Sql(folder.path(),
      fmt::format("UPDATE runs SET plan = x'{}', checkpoints = x'{:02x}{}' WHERE id = 'r'; PRAGMA "
                  "user_version=1",
                  hex(plan), manifest.size(), hex(manifest)));
  for (int i = 0; i < 2; ++i) {  // upgraded, and as it then is
    const auto store = OpenStore(folder.path());
    const auto runs = store->LoadRuns();
    ASSERT_TRUE(runs.ok()) << runs.status();
    ASSERT_EQ(runs->size(), 2u);
    ExpectEqual((*runs)[0], record);
  }
}

// The new version is in the write-ahead log only, as after a crash of a newer coordinator.
TEST_F(RefusalTest, NewerSchemaInTheLog) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &database), SQLITE_OK);
  sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  ASSERT_EQ(sqlite3_exec(database, "PRAGMA user_version=9", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  const std::string log = *ReadFile(path() + "-wal");
  ASSERT_FALSE(log.empty());
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has schema version 9");
  EXPECT_EQ(*ReadFile(path() + "-wal"), log);
}

TEST_F(RefusalTest, AnotherProgramsDatabase) {
  Sql(folder_.path(), "PRAGMA application_id=42");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "is not a state store of longhaul");
}

TEST_F(RefusalTest, NoDatabaseAtAll) {
  ASSERT_TRUE(WriteFileAtomic(path(), std::string(5000, 'x')).ok());
  ExpectRefused(absl::StatusCode::kDataLoss, "does not begin like a database");
}

TEST_F(RefusalTest, EmptyFile) {
  ASSERT_TRUE(WriteFileAtomic(path(), "").ok());
  ExpectRefused(absl::StatusCode::kDataLoss, "it has 0 bytes");
}

TEST_F(RefusalTest, CutOff) {
  const std::string bytes = *ReadFile(path());
  ASSERT_TRUE(WriteFileAtomic(path(), bytes.substr(0, bytes.size() / 2)).ok());
  ExpectRefused(absl::StatusCode::kDataLoss, "is damaged");
}

TEST_F(RefusalTest, OverwrittenPages) {
  std::string bytes = *ReadFile(path());
  for (size_t i = 4096; i < bytes.size(); ++i) bytes[i] = static_cast<char>(bytes[i] ^ 0x5a);
  ASSERT_TRUE(WriteFileAtomic(path(), bytes).ok());
  ExpectRefused(absl::StatusCode::kDataLoss, "is damaged");
}

// Found by a fuzzer: the journal's mode was set before the tables were looked at.
TEST_F(RefusalTest, AColumnIsNotThere) {
  Sql(folder_.path(), "PRAGMA journal_mode=DELETE");
  Sql(folder_.path(), "ALTER TABLE steps RENAME COLUMN record TO recxrd");
  ExpectRefused(absl::StatusCode::kDataLoss, "has no column named record");
}

TEST_F(RefusalTest, LogWithoutItsDatabase) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &database), SQLITE_OK);
  sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  ASSERT_EQ(
      sqlite3_exec(database, "DELETE FROM steps; DELETE FROM events", nullptr, nullptr, nullptr),
      SQLITE_OK);
  sqlite3_close(database);
  std::filesystem::remove(path());
  ExpectRefused(absl::StatusCode::kDataLoss, "is missing, but its log");
}

TEST_F(RefusalTest, ARunThatCannotBeRead) {
  Sql(folder_.path(), "UPDATE runs SET plan=x'ffff'");
  const auto runs = OpenStore(folder_.path())->LoadRuns();
  EXPECT_EQ(runs.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Message(runs.status())), HasSubstr("run r: its plan cannot be read"));
}

}  // namespace
}  // namespace longhaul::coordinator
