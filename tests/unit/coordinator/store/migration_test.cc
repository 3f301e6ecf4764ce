// Stores of the version before are brought to the present one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/hash.h"
#include "coordinator/store/audit.h"
#include "coordinator/store/members.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/store.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_dump.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kForEver(48, 'e'), kForAnHour(48, 'h');

// What a coordinator of version 8 has left, with a run.
void MakeVersion8(const std::string& folder) {
  ASSERT_TRUE(OpenStore(folder)->Apply({write::Run{FullRecord("r")}}).ok());
  Sql(folder,
      "ALTER TABLE join_tokens DROP COLUMN most_members;"
      "ALTER TABLE members DROP COLUMN token_sha256; PRAGMA user_version=8;");
}

// The same of version 7.
void MakeVersion7(const std::string& folder) {
  MakeVersion8(folder);
  Sql(folder,
      "DROP TABLE changes; DROP TABLE applied; DROP TABLE terms; DROP TABLE voting;"
      "DROP TABLE requests; PRAGMA user_version=7;");
}

// The same of version 6, with members.
void MakeVersion6(const std::string& folder) {
  MakeVersion7(folder);
  Sql(folder,
      "DROP TABLE audit; DROP INDEX former_members_by_key; DROP TABLE former_members;"
      "PRAGMA user_version=6;"
      "INSERT INTO members VALUES('ann','admin','','k',1,9000000000000,0);"
      "INSERT INTO members VALUES('bob','user','','b',1,9000000000000,2);"
      "INSERT INTO join_tokens VALUES('" +
          Sha256Hex(kForEver) +
          "','admin',-1,0);"
          "INSERT INTO join_tokens VALUES('" +
          Sha256Hex(kForAnHour) + "','user',1,9000000000000);");
}

// The tables of a store, as they were made.
std::vector<std::string> Tables(const TempDir& of) {
  auto database = sqlite::Database::Open(of.path() + "/store.db", SQLITE_OPEN_READWRITE).value();
  EXPECT_EQ(*database.QueryInt("PRAGMA user_version"), int64_t{kStoreSchemaVersion});
  return Column(database, "SELECT name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1");
}

TEST(MigrationTest, FromVersion6) {
  const TempDir folder;
  MakeVersion6(folder.path());
  const std::string before = DumpStore(folder.path() + "/store.db");
  EXPECT_THAT(before, Not(HasSubstr("\naudit\n")));
  const absl::Time now = absl::Now();
  {
    const auto store = Store::Open(folder.path());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->LoadRuns()->runs.size(), 1u);
    const auto members = Members::Open(folder.path(), &(*store)->journal()).value();
    EXPECT_EQ(members->List().size(), 2u);
    // Tokens that were for ever end as late as any may; others as they did.
    const absl::Time until = **members->TokenUntil(kForEver);
    EXPECT_GE(until, absl::FromUnixMillis(absl::ToUnixMillis(now + kLongestTokenLife)));
    EXPECT_LE(until, absl::Now() + kLongestTokenLife);
    EXPECT_EQ(absl::ToUnixMillis(**members->TokenUntil(kForAnHour)), 9000000000000);
    EXPECT_EQ(*members->Forget(absl::FromUnixMillis(3)), 1u);
    v1::AuditEntry entry;
    entry.set_action("join");
    const auto audit = Audit::Open(folder.path(), &(*store)->journal()).value();
    audit->Record(entry);
    EXPECT_EQ(audit->List({})->size(), 1u);
  }
  // It is the present version from now on, and has the tables that a new one has.
  const TempDir fresh;
  OpenStore(fresh.path());
  EXPECT_EQ(Tables(folder), Tables(fresh));
}

TEST(MigrationTest, FromVersion8) {
  const TempDir folder;
  MakeVersion8(folder.path());
  Sql(folder.path(),
      "INSERT INTO members VALUES('ann','admin','','k',1,9000000000000,0);"
      "INSERT INTO join_tokens VALUES('" +
          Sha256Hex(kForAnHour) + "','user',1,9000000000000);");
  {
    const auto store = OpenStore(folder.path());
    EXPECT_EQ(store->LoadRuns()->runs.size(), 1u);
    const auto members = Members::Open(folder.path(), &store->journal()).value();
    EXPECT_EQ(members->List().size(), 1u);
    // Tokens of before limit nobody.
    const std::vector<v1::TokenStatus> tokens = members->ListTokens(absl::Now()).value();
    ASSERT_EQ(tokens.size(), 1u);
    EXPECT_EQ(tokens[0].members_most(), 0u);
    EXPECT_EQ(members->LifeFor("ann", absl::Hours(700)), absl::Hours(700));
  }
  const TempDir fresh;
  OpenStore(fresh.path());
  EXPECT_EQ(Tables(folder), Tables(fresh));
}

TEST(MigrationTest, FromVersion7) {
  const TempDir folder;
  MakeVersion7(folder.path());
  {
    const auto store = OpenStore(folder.path());
    EXPECT_EQ(store->LoadRuns()->runs.size(), 1u);
    // It has no changes yet, whatever it contains.
    EXPECT_EQ(store->journal().committed(), History{});
  }
  const TempDir fresh;
  OpenStore(fresh.path());
  EXPECT_EQ(Tables(folder), Tables(fresh));
}

}  // namespace
}  // namespace longhaul::coordinator
