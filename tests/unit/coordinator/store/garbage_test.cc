#include "coordinator/store/garbage.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "coordinator/store/backup.h"
#include "coordinator/store/state_dir_lock.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

std::string HashOf(std::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

class GarbageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    blobs_ = *BlobStore::Open(folder_.path() + "/blobs");
    copies_ = *BlobStore::Open(folder_.path() + "/shard-copies");
    store_ = *Store::Open(folder_.path());
  }
  std::string Put(const BlobStore& store, const std::string& text, bool old = true) {
    const std::string sha256 = HashOf(text), path = store.PathOf(sha256);
    std::ofstream(path, std::ios::binary) << text;
    if (old) {
      std::filesystem::last_write_time(
          path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
    }
    return sha256;
  }
  v1::CollectGarbageReply Collect(const command::CollectGarbage& asked) {
    auto reply = CollectGarbage(asked, *blobs_, *copies_, store_.get());
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::CollectGarbageReply();
  }

  TempDir folder_;
  std::unique_ptr<BlobStore> blobs_, copies_;
  std::unique_ptr<Store> store_;
};

TEST_F(GarbageTest, WhatIsNamedOrNewStays) {
  const std::string named = Put(*blobs_, "named"), fresh = Put(*blobs_, "new", /*old=*/false),
                    gone = Put(*blobs_, "nobody's"), copy = Put(*copies_, "copied"),
                    lost = Put(*copies_, "nobody's copy");
  command::CollectGarbage asked{.named = {named}, .copies = {copy}};
  asked.dry_run = true;
  EXPECT_EQ(Collect(asked).blobs(), 1u);
  EXPECT_TRUE(blobs_->Has(gone));
  asked.dry_run = false;
  const v1::CollectGarbageReply reply = Collect(asked);
  EXPECT_EQ(reply.blobs(), 1u);
  EXPECT_EQ(reply.blob_bytes(), 8u);
  EXPECT_EQ(reply.copies(), 1u);
  EXPECT_TRUE(blobs_->Has(named) && blobs_->Has(fresh) && copies_->Has(copy));
  EXPECT_FALSE(blobs_->Has(gone) || copies_->Has(lost));
}

TEST_F(GarbageTest, WhatIsClaimedStaysForAnotherDay) {
  const std::string blob = Put(*blobs_, "uploaded long ago");
  EXPECT_TRUE(blobs_->Claim(blob));
  EXPECT_FALSE(blobs_->Claim(HashOf("never uploaded")));
  EXPECT_EQ(Collect({}).blobs(), 0u);
  EXPECT_TRUE(blobs_->Has(blob));
}

// In digits, as the CLI writes lists, or in bytes; wherever it lies, also across what is read at a
// time. Seeded.
TEST_F(GarbageTest, WhatAListNamesStays) {
  std::mt19937 random(7);
  for (const size_t at : {size_t{0}, size_t{1}, size_t{4097}, (size_t{1} << 20) - 40,
                          (size_t{1} << 20) - 1, size_t{1} << 20, (size_t{1} << 20) + 5}) {
    for (const bool digits : {true, false}) {
      const std::string kept = Put(*blobs_, fmt::format("kept {} {}", at, digits)),
                        gone = Put(*blobs_, fmt::format("gone {} {}", at, digits));
      std::string text((size_t{1} << 20) + 200, 0);
      for (char& byte : text) byte = static_cast<char>('a' + random() % 6);
      text.replace(at, digits ? 64 : 32, digits ? kept : absl::HexStringToBytes(kept));
      const std::string list = Put(*blobs_, text);
      command::CollectGarbage asked{.named = {list}, .lists = {list}};
      EXPECT_EQ(Collect(asked).blobs(), 1u) << at << digits;
      EXPECT_TRUE(blobs_->Has(kept)) << at << digits;
      EXPECT_FALSE(blobs_->Has(gone)) << at << digits;
      ASSERT_TRUE(blobs_->Remove(kept).ok() && blobs_->Remove(list).ok());
    }
  }
}

TEST_F(GarbageTest, AListThatCannotBeReadKeepsAll) {
  const std::string gone = Put(*blobs_, "nobody's"), list = HashOf("list");
  std::filesystem::create_directory(blobs_->PathOf(list));  // opens, and cannot be read
  const v1::CollectGarbageReply reply = Collect({.named = {list}, .lists = {list}});
  EXPECT_THAT(reply.blobs_kept_because(), HasSubstr(list));
  EXPECT_TRUE(blobs_->Has(gone));
  // One that is not there names nothing.
  EXPECT_EQ(Collect({.named = {list}, .lists = {HashOf("away")}}).blobs(), 1u);
}

TEST_F(GarbageTest, NewestStepRecordsStay) {
  std::vector<Write> writes;
  for (uint64_t step = 0; step < 10; ++step) {
    writes.emplace_back(StepOf("a", step, 1));
    writes.emplace_back(StepOf("b", step, 1));
  }
  ASSERT_TRUE(store_->Apply(writes).ok());
  command::CollectGarbage asked{.trimmed = {RunId("a")}, .keep_steps = 4};
  asked.dry_run = true;
  EXPECT_EQ(Collect(asked).step_records(), 6u);
  EXPECT_EQ(store_->Steps(RunId("a"), 0, 100)->size(), 10u);
  asked.dry_run = false;
  EXPECT_EQ(Collect(asked).step_records(), 6u);
  EXPECT_EQ(store_->Steps(RunId("a"), 0, 100)->front().step(), 6u);
  EXPECT_EQ(store_->Steps(RunId("b"), 0, 100)->size(), 10u);
  EXPECT_EQ(Collect(asked).step_records(), 0u) << "fewer than are kept";
}

TEST_F(GarbageTest, ARunThatIsRemovedLeavesNoRow) {
  std::vector<Write> writes;
  for (const char* id : {"a", "b"}) {
    writes.emplace_back(write::Run{FullRecord(id)});
    writes.emplace_back(EventOf(writes.size(), id));
    writes.emplace_back(StepOf(id, 1, 1));
    writes.emplace_back(LogOf(id, "a line"));
  }
  writes.emplace_back(write::RemoveRun{RunId("a")});
  ASSERT_TRUE(store_->Apply(writes).ok());
  EXPECT_EQ(store_->LoadRuns()->runs.size(), 1u);
  EXPECT_EQ(store_->LoadRuns()->runs[0].id, RunId("b"));
  EXPECT_TRUE(store_->Steps(RunId("a"), 0, 9)->empty() && store_->Events("a", 0, 9)->empty() &&
              store_->Logs(RunId("a"), 0, 9)->empty());
  EXPECT_EQ(store_->Steps(RunId("b"), 0, 9)->size(), 1u);
}

// ---- Backups ----------------------------------------------------------------------

class BackupTest : public GarbageTest {
 protected:
  static constexpr const char* kSecrets[] = {"/authority.pem", "/relay-secret"};
  const std::string backup_ = folder_.path() + "/backup", restored_ = folder_.path() + "/restored";
};

TEST_F(BackupTest, OfAStoreInUseIsOfOneMoment) {
  const std::string blob = Put(*blobs_, "text");
  for (const char* name : kSecrets) {
    ASSERT_TRUE(WriteFileAtomic(folder_.path() + name, name, 0600).ok());
  }
  ASSERT_TRUE(store_->Apply({write::Run{FullRecord("a")}, EventOf(1, "a")}).ok());
  const auto done = BackUp(folder_.path(), backup_, /*with_blobs=*/true);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->runs, 1u);
  EXPECT_EQ(done->blobs, 1u);
  // What comes later is not in it; what is there is not copied again.
  ASSERT_TRUE(store_->Apply({write::Run{FullRecord("b")}}).ok());
  ASSERT_TRUE(Restore(backup_, restored_).ok());
  const auto store = Store::Open(restored_);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_EQ((*store)->LoadRuns()->runs.size(), 1u);
  ExpectEqual((*store)->LoadRuns()->runs[0], FullRecord("a"));
  EXPECT_TRUE((*BlobStore::Open(restored_ + "/blobs"))->Has(blob));
  for (const char* name : kSecrets) {
    EXPECT_EQ(*ReadFile(restored_ + name), name);
    EXPECT_EQ(std::filesystem::status(restored_ + name).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  const auto again = BackUp(folder_.path(), backup_, /*with_blobs=*/true);
  EXPECT_EQ(again->runs, 2u);
  EXPECT_EQ(again->blobs, 0u);
}

// Changes are for followers of this store, and its witness votes for its seats: not for a copy's.
TEST_F(BackupTest, BeginsAlone) {
  ASSERT_TRUE(store_->Apply({write::Run{FullRecord("a")}}).ok());
  Sql(folder_.path(), "INSERT INTO voting VALUES(1,'w','witness')");
  ASSERT_TRUE(BackUp(folder_.path(), backup_, false).ok());
  ASSERT_TRUE(Restore(backup_, restored_).ok());
  for (const std::string& folder : {backup_, restored_}) {
    auto store = sqlite::Database::Open(folder + "/store.db", SQLITE_OPEN_READWRITE).value();
    EXPECT_EQ(*store.QueryInt("SELECT count(*) FROM changes"), 0);
    EXPECT_EQ(*store.QueryInt("SELECT count(*) FROM voting"), 0);
  }
  // It goes on behind what it has.
  const auto store = Store::Open(restored_).value();
  EXPECT_EQ(store->journal().committed(), store_->journal().committed());
  ASSERT_TRUE(store->Apply({write::Run{FullRecord("b")}}).ok());
  EXPECT_EQ(store->journal().committed().number, 2u);
}

TEST_F(BackupTest, IsNotRestoredOverACoordinator) {
  ASSERT_TRUE(BackUp(folder_.path(), backup_, false).ok());
  const auto done = Restore(backup_, folder_.path());
  EXPECT_EQ(done.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(done.status().message()), HasSubstr("store.db is there already"));
  // The backup itself, by mistake: it can be replaced as before.
  EXPECT_FALSE(Restore(backup_, backup_).ok());
  EXPECT_TRUE(BackUp(folder_.path(), backup_, false).ok());
}

TEST_F(BackupTest, NeverReplacesAStoreOfACoordinator) {
  ASSERT_TRUE(store_->Apply({write::Run{FullRecord("a")}}).ok());
  const auto at = std::filesystem::last_write_time(folder_.path() + "/store.db");
  // Its own state directory, and another's, served or not.
  const std::string other = folder_.path() + "/other";
  { ASSERT_TRUE(StateDirLock::Acquire(other).ok()); }
  { ASSERT_TRUE(StateDirLock::Acquire(folder_.path()).ok()); }
  for (const std::string& folder : {folder_.path(), other}) {
    const auto done = BackUp(folder_.path(), folder, false);
    EXPECT_EQ(done.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(done.status().message()), HasSubstr("is a state directory"));
  }
  EXPECT_EQ(std::filesystem::last_write_time(folder_.path() + "/store.db"), at);
  EXPECT_FALSE(std::filesystem::exists(other + "/store.db"));
}

// SQLite would play it into the store that is restored.
TEST_F(BackupTest, IsNotRestoredBesideTheLogOfALostStore) {
  ASSERT_TRUE(BackUp(folder_.path(), backup_, false).ok());
  for (const std::string log : {"-wal", "-shm", "-journal"}) {
    const std::string stale = restored_ + "/store.db" + log;
    std::filesystem::create_directories(restored_);
    std::ofstream(stale) << "of another time";
    const auto done = Restore(backup_, restored_);
    EXPECT_EQ(done.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(done.status().message()), HasSubstr(stale));
    EXPECT_FALSE(std::filesystem::exists(restored_ + "/store.db"));
    std::filesystem::remove(stale);
  }
  EXPECT_TRUE(Restore(backup_, restored_).ok());
}

TEST_F(BackupTest, ThatIsDamagedIsNotRestored) {
  const std::string blob = Put(*blobs_, "text");
  ASSERT_TRUE(BackUp(folder_.path(), backup_, true).ok());
  std::ofstream(backup_ + "/blobs/" + blob, std::ios::app) << "more";
  EXPECT_THAT(std::string(Restore(backup_, restored_).status().message()), HasSubstr(blob));
  ASSERT_TRUE(std::filesystem::remove(backup_ + "/blobs/" + blob));
  std::ofstream(backup_ + "/store.db", std::ios::binary | std::ios::trunc) << "no database";
  EXPECT_FALSE(Restore(backup_, restored_).ok());
  EXPECT_FALSE(std::filesystem::exists(restored_ + "/store.db"));
  EXPECT_EQ(Restore(folder_.path() + "/nowhere", restored_).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace longhaul::coordinator
