// Which bytes a change writes, and the rows of answered calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::SizeIs;

// The encoded bytes of the newest change.
int64_t NewestChangeBytes(const std::string& folder) {
  auto database = sqlite::Database::Open(folder + "/store.db", SQLITE_OPEN_READONLY);
  EXPECT_TRUE(database.ok()) << database.status();
  return *database->QueryInt("SELECT length(bytes) FROM changes ORDER BY number DESC LIMIT 1");
}

// A run's file and plan are most of its bytes. They are neither written nor sent to a standby while
// they stay as they are.
TEST(RunRowsTest, AStepWritesLittle) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  RunRecord record = FullRecord("r");
  ASSERT_TRUE(store->Apply({write::Run{record}}).ok());
  const int64_t whole = NewestChangeBytes(folder.path());
  record.step += 1;
  record.attempts.in_a_row += 1;
  record.reason = "another one";
  ASSERT_TRUE(store->Apply({write::Run{record}}).ok());
  EXPECT_LT(NewestChangeBytes(folder.path()), 1000);
  EXPECT_GT(whole, 1500);
  ExpectEqual(store->LoadRuns()->runs.at(0), record);
}

TEST(RunRowsTest, WhateverChangesIsWritten) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  RunRecord record = FullRecord("r");
  const auto expect_stored = [&] {
    ASSERT_TRUE(store->Apply({write::Run{record}}).ok());
    ExpectEqual(store->LoadRuns()->runs.at(0), record);
  };
  expect_stored();
  record.spec.train.steps += 1;
  expect_stored();
  record.plan.reset();
  expect_stored();
  record.checkpoints.clear();
  expect_stored();
  record.link_secret = "another";
  expect_stored();
  record.data_files.clear();
  expect_stored();
  record.samples.clear();
  expect_stored();
  record.owner = "bob";
  expect_stored();
  record.submitted_unix_ms += 1;
  record.started_unix_ms += 1;
  record.resize_asked = !record.resize_asked;
  record.replicas_wanted += 1;
  expect_stored();
}

// What a failed transaction wrote of a run is not there, so the next row is whole again.
TEST(RunRowsTest, AFailedTransactionIsForgotten) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  RunRecord record = FullRecord("r");
  v1::Event event;
  event.set_sequence(1);
  ASSERT_TRUE(store->Apply({write::Run{record}, write::LogEvent{event}}).ok());
  record.spec.train.steps += 1;
  // The event's number is taken.
  ASSERT_FALSE(store->Apply({write::Run{record}, write::LogEvent{event}}).ok());
  ASSERT_TRUE(store->Apply({write::Run{record}}).ok());
  ExpectEqual(store->LoadRuns()->runs.at(0), record);
  ASSERT_TRUE(store->Apply({write::RemoveRun{RunId("r")}, write::Run{record}}).ok());
  ExpectEqual(store->LoadRuns()->runs.at(0), record);
}

TEST(RequestRowsTest, AnswersComeBackUntilTheyAreForgotten) {
  const TempDir folder;
  AnsweredCall call{.owner = "ann",
                    .id = "0123456789abcdef",
                    .kind = "stop",
                    .asked_sha256 = "of the request",
                    .reply = std::string("\0bytes", 6),
                    .unix_ms = 12};
  {
    const auto store = OpenStore(folder.path());
    ASSERT_TRUE(store->Apply({write::Answered{call}}).ok());
    call.owner = "bob";
    ASSERT_TRUE(store->Apply({write::Answered{call}, write::Answered{call}}).ok());
  }
  const auto store = OpenStore(folder.path());
  ASSERT_THAT(store->LoadRuns()->answered, SizeIs(2));
  ASSERT_TRUE(store->Apply({write::AnswerForgotten{"ann", call.id}}).ok());
  const auto left = store->LoadRuns()->answered;
  ASSERT_THAT(left, SizeIs(1));
  EXPECT_EQ(left[0].owner, "bob");
  EXPECT_EQ(left[0].id, call.id);
  EXPECT_EQ(left[0].kind, call.kind);
  EXPECT_EQ(left[0].asked_sha256, call.asked_sha256);
  EXPECT_EQ(left[0].reply, call.reply);
  EXPECT_EQ(left[0].unix_ms, call.unix_ms);
}

// It has a number as every change, so the other coordinator has to take it.
TEST(RequestRowsTest, ABarrierIsAChange) {
  const TempDir folder;
  const auto store = OpenStore(folder.path());
  Written written;
  ASSERT_TRUE(store->Apply({write::Barrier{}}, &written).ok());
  EXPECT_EQ(written.change, 1u);
  EXPECT_THAT(store->LoadRuns()->answered, SizeIs(0));
}

}  // namespace
}  // namespace longhaul::coordinator
