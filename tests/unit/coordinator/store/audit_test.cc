#include "coordinator/store/audit.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/store/store.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::testing::EndsWith;
using ::testing::Not;

v1::AuditEntry Entry(const std::string& member, const std::string& action,
                     const std::string& object = "") {
  v1::AuditEntry entry;
  entry.set_member(member);
  entry.set_address("192.0.2.7");
  entry.set_action(action);
  entry.set_object(object);
  entry.set_outcome("ok");
  return entry;
}

class AuditTest : public ::testing::Test {
 protected:
  AuditTest() { Open(); }
  void Open() { audit_ = Audit::Open(folder_.path(), &store_->journal()).value(); }
  std::vector<v1::AuditEntry> All(const v1::ListAuditRequest& request = {}) {
    return audit_->List(request).value();
  }

  testing::TempDir folder_;
  std::unique_ptr<Store> store_ = OpenStore(folder_.path());
  std::unique_ptr<Audit> audit_;
};

TEST_F(AuditTest, WhatIsRecordedStays) {
  audit_->Record(Entry("ann", "revoke", "bob"));
  audit_->Record(Entry("bob", "submit", "tiny-1"));
  audit_->Record(Entry("eve", "join"));
  audit_.reset();
  Open();
  ASSERT_EQ(All().size(), 3u);
  EXPECT_EQ(All()[0].sequence(), 1u);
  EXPECT_EQ(All()[0].object(), "bob");
  EXPECT_GT(All()[0].unix_ms(), 0);
  v1::ListAuditRequest request;
  request.set_member("bob");  // what he did, and what was done to him
  ASSERT_EQ(All(request).size(), 2u);
  request.set_after(1);
  ASSERT_EQ(All(request).size(), 1u);
  EXPECT_EQ(All(request)[0].action(), "submit");
  request.clear_member();
  request.set_limit(1);
  EXPECT_EQ(All(request)[0].sequence(), 2u);
  request.set_since_unix_ms(All()[2].unix_ms() + 1);
  EXPECT_TRUE(All(request).empty());
  audit_->Record(Entry("ann", "gc"));
  EXPECT_EQ(All().back().sequence(), 4u);  // numbers go on after a restart
}

// Peers choose some of the texts.
TEST_F(AuditTest, NobodyWritesLinesOfHisOwn) {
  v1::AuditEntry entry = Entry("eve", "join", "x\n2026-01-01 ann admin - revoke bob ok\x1b[2J");
  entry.set_outcome(std::string(5000, 'y') + "\r");
  entry.set_address("evil\taddress");
  audit_->Record(entry);
  ASSERT_EQ(All().size(), 1u);
  const v1::AuditEntry read = All()[0];
  for (const std::string& text : {read.object(), read.outcome(), read.address()}) {
    for (const char c : text) EXPECT_GE(static_cast<unsigned char>(c), ' ') << text;
  }
  EXPECT_LE(read.object().size(), kMaxAuditObjectBytes + 3);
  EXPECT_LE(read.outcome().size(), kMaxAuditOutcomeBytes + 43);
}

TEST_F(AuditTest, OldOnesGo) {
  for (uint64_t i = 0; i < kKeptAuditEntries / 5'000; ++i) {
    for (int j = 0; j < 5'000; ++j) audit_->Record(Entry("ann", "gc"));
    (void)All();  // they are written
  }
  for (int i = 0; i < 1'500; ++i) audit_->Record(Entry("ann", "gc", "last"));
  v1::ListAuditRequest last;
  last.set_member("last");
  EXPECT_EQ(All(last).size(), kAuditPage);
  auto database =
      sqlite::Database::Open(folder_.path() + "/store.db", SQLITE_OPEN_READWRITE).value();
  EXPECT_LE(*database.QueryInt("SELECT count(*) FROM audit"),
            static_cast<int64_t>(kKeptAuditEntries) + 1'000);
  EXPECT_EQ(*database.QueryInt("SELECT max(sequence) FROM audit"),
            static_cast<int64_t>(kKeptAuditEntries) + 1'500);
}

TEST_F(AuditTest, AFloodOfRefusalsIsOneEntry) {
  for (int i = 0; i < 1'000; ++i) audit_->RecordRefusal(Entry("", "Info"));
  EXPECT_EQ(All().size(), 1u);
  EXPECT_THAT(All()[0].outcome(), Not(EndsWith("more before)")));
}

TEST(RefusalLimitTest, CountsWhatItLeavesOut) {
  RefusalLimit limit;
  MonoTime now = Now();
  uint64_t left_out = 0;
  EXPECT_TRUE(limit.Take("a", now, &left_out));
  EXPECT_FALSE(limit.Take("a", now, &left_out));
  EXPECT_FALSE(limit.Take("a", now, &left_out));
  EXPECT_TRUE(limit.Take("b", now, &left_out));
  EXPECT_EQ(left_out, 0u);
  now = now + absl::Seconds(1);
  EXPECT_TRUE(limit.Take("a", now, &left_out));
  EXPECT_EQ(left_out, 2u);
  // Many addresses together are limited, too.
  uint64_t recorded = 0;
  for (int i = 0; i < 10'000; ++i) {
    now = now + absl::Milliseconds(1);
    recorded += limit.Take(fmt::format("{}", i), now, &left_out) ? 1 : 0;
  }
  EXPECT_GT(recorded, 50u);
  EXPECT_LT(recorded, 150u);
}

}  // namespace
}  // namespace longhaul::coordinator
