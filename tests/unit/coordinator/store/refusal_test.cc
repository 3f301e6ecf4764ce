// Stores that cannot be used are refused and left as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "coordinator/store/store.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

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
  Sql(folder_.path(), "PRAGMA user_version=10");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has schema version 10");
}

TEST_F(RefusalTest, OlderSchema) {
  Sql(folder_.path(), "PRAGMA user_version=5");
  ExpectRefused(absl::StatusCode::kFailedPrecondition,
                "has schema version 5, this coordinator knows versions 6 to 9");
}

// A store of version 6 that has the tables of version 7 is none.
TEST_F(RefusalTest, OlderSchemaWithNewerTables) {
  Sql(folder_.path(), "PRAGMA journal_mode=DELETE; PRAGMA user_version=6");
  ExpectRefused(absl::StatusCode::kDataLoss, "already exists");
}

TEST_F(RefusalTest, SchemaOfNoVersion) {
  Sql(folder_.path(), "PRAGMA user_version=0");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has schema version 0");
}

// The new version is in the write-ahead log only, as after a crash of a newer coordinator.
TEST_F(RefusalTest, NewerSchemaInTheLog) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &database), SQLITE_OK);
  sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  ASSERT_EQ(sqlite3_exec(database, "PRAGMA user_version=10", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  const std::string log = *ReadFile(path() + "-wal");
  ASSERT_FALSE(log.empty());
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "has schema version 10");
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

}  // namespace
}  // namespace longhaul::coordinator
