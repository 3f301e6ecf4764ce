// A copy of a store that plays every change which its journal tells of is the store, to the row.
#include "coordinator/store/journal.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/store/backup.h"
#include "coordinator/store/members.h"
#include "coordinator/store/store.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_dump.h"
#include "tests/unit/coordinator/store/store_records.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class Ear : public JournalFollower {
 public:
  void Changed(v1::StoreChange change) override { changes.push_back(std::move(change)); }
  void Await(uint64_t number) override { awaited = number; }
  std::vector<v1::StoreChange> changes;
  uint64_t awaited = 0;
};

class JournalTest : public ::testing::Test {
 protected:
  JournalTest()
      : store_(Store::Open(folder_.path()).value()),
        members_(Members::Open(folder_.path(), &store_->journal()).value()) {}
  std::string Original() const { return folder_.path() + "/store.db"; }
  std::string Copy() const { return folder_.path() + "/copy.db"; }

  // Makes the copy, and hears of what comes behind it.
  void Follow() {
    std::optional<StoreCopy> copy;
    EXPECT_TRUE(store_->journal()
                    .Follow(ear_,
                            [&](uint64_t number) -> Status {
                              begin_ = number;
                              LH_ASSIGN_OR_RETURN(copy, StoreCopy::Begin(Original()));
                              return absl::OkStatus();
                            })
                    .ok());
    // What is written between the beginning and the copy is not in it.
    WriteSomething();
    EXPECT_TRUE(copy->WriteTo(Copy()).ok());
  }
  void Replay() {
    auto copy = sqlite::Database::Open(Copy(), SQLITE_OPEN_READWRITE).value();
    uint64_t number = begin_;
    for (const v1::StoreChange& change : ear_->changes) {
      EXPECT_EQ(change.number(), ++number);
      const Status status = copy.Replay(change);
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  void WriteSomething() {
    const std::string run = "run-" + std::to_string(random_() % 6);
    switch (random_() % 8) {
      case 0: {
        RunRecord record = FullRecord(run);
        record.step = random_() % 1000;
        EXPECT_TRUE(store_->Apply({write::Run{record}, write::Run{FullRecord("run-x")}}).ok());
        break;
      }
      case 1:
        EXPECT_TRUE(store_->Apply({write::RemoveRun{RunId(run)}}).ok());
        break;
      case 2: {
        write::StepDone done{.run = RunId(run)};
        done.step.set_step(random_() % 50);
        done.step.set_loss(0.1 * static_cast<double>(random_() % 100));
        EXPECT_TRUE(store_->Apply({done}).ok());
        break;
      }
      case 3: {
        write::WorkerLog log{.run = RunId(run), .worker_name = "w'1"};
        log.line.set_text(std::string("a\0b\xff", 4));
        EXPECT_TRUE(store_->Apply({log, log}).ok());
        break;
      }
      case 4: {
        write::LogEvent event;
        event.event.set_sequence(++sequence_);
        event.event.set_run_id(run);
        EXPECT_TRUE(store_->Apply({event}).ok());
        break;
      }
      case 5:
        EXPECT_TRUE(store_->TrimSteps(RunId(run), 3, false).ok());
        break;
      case 6:
        tokens_.push_back(NewJoinToken(Role::kUser, std::string(64, 'a')));
        EXPECT_TRUE(members_->AddToken(tokens_.back(), 2, kUntil, kNow).ok());
        break;
      case 7:
        if (tokens_.empty()) break;
        // The third use of a token is refused, and changes nothing.
        (void)members_->Join(tokens_[random_() % tokens_.size()].secret,
                             {Role::kUser, "ann", "", std::to_string(random_())}, kNow, kUntil);
    }
  }

  const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
  const absl::Time kUntil = kNow + absl::Hours(1);
  testing::TempDir folder_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Members> members_;
  std::shared_ptr<Ear> ear_ = std::make_shared<Ear>();
  std::mt19937 random_{7};
  std::vector<JoinToken> tokens_;
  uint64_t begin_ = 0, sequence_ = 0;
};

TEST_F(JournalTest, ACopyThatPlaysAllChangesIsTheStore) {
  for (int i = 0; i < 100; ++i) WriteSomething();
  Follow();
  for (int i = 0; i < 600; ++i) WriteSomething();
  EXPECT_GT(ear_->changes.size(), 300u);
  EXPECT_NE(DumpStore(Original()), DumpStore(Copy()));
  Replay();
  EXPECT_EQ(DumpStore(Original()), DumpStore(Copy()));
}

TEST_F(JournalTest, WhatIsRefusedIsToldNobody) {
  Follow();
  const size_t before = ear_->changes.size();
  EXPECT_FALSE(members_->Join("no token", {Role::kUser, "ann", "", "1"}, kNow, kUntil).ok());
  write::LogEvent event;
  event.event.set_sequence(1'000'000);
  EXPECT_TRUE(store_->Apply({event}).ok());
  EXPECT_EQ(ear_->changes.size(), before + 1);
  // The same number again: the transaction with its step fails whole.
  write::StepDone done{.run = RunId("run-0")};
  done.step.set_step(7);
  EXPECT_FALSE(store_->Apply({done, event}).ok());
  EXPECT_EQ(ear_->changes.size(), before + 1);
  Replay();
  EXPECT_EQ(DumpStore(Original()), DumpStore(Copy()));
}

// A change comes from another machine: it reaches the rows of the store's tables and nothing else.
TEST_F(JournalTest, AStrangeChangeIsRefusedWhole) {
  Follow();
  auto copy = sqlite::Database::Open(Copy(), SQLITE_OPEN_READWRITE).value();
  const std::string elsewhere = folder_.path() + "/elsewhere.db";
  for (const std::string& sql :
       {"ATTACH DATABASE '" + elsewhere + "' AS other", std::string("CREATE TABLE other(a)"),
        std::string("PRAGMA writable_schema=ON"), std::string("DELETE FROM sqlite_master"),
        std::string("COMMIT"), std::string("VACUUM INTO '") + elsewhere + "'",
        std::string("DELETE FROM runs WHERE id=zeroblob(1000000000)"),
        std::string("DELETE FROM runs WHERE id IN (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL "
                    "SELECT x+1 FROM c) SELECT x FROM c)")}) {
    v1::StoreChange change;
    change.add_statements()->set_sql("DELETE FROM events");
    change.add_statements()->set_sql(sql);
    const std::string before = DumpStore(Copy());
    const Status status = copy.Replay(change);
    EXPECT_TRUE(absl::IsDataLoss(status)) << sql << ": " << status;
    EXPECT_EQ(DumpStore(Copy()), before) << sql;
  }
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
}

TEST_F(JournalTest, WhoeverWritesWaitsForTheFollower) {
  Follow();
  for (int i = 0; i < 20; ++i) {
    WriteSomething();
    EXPECT_EQ(ear_->awaited, ear_->changes.empty() ? 0 : ear_->changes.back().number());
  }
  EXPECT_GT(ear_->awaited, 0u);
}

TEST_F(JournalTest, ThereIsOneFollowerUntilItGoes) {
  Follow();
  const auto other = std::make_shared<Ear>();
  const auto begin = [](uint64_t) { return absl::OkStatus(); };
  EXPECT_THAT(store_->journal().Follow(other, begin).ToString(), HasSubstr("a standby already"));
  store_->journal().Unfollow(other.get());  // it is none
  EXPECT_FALSE(store_->journal().Follow(other, begin).ok());
  store_->journal().Unfollow(ear_.get());
  EXPECT_TRUE(store_->journal().Follow(other, begin).ok());
}

}  // namespace
}  // namespace longhaul::coordinator
