// A copy of a leader's store: it logs before it applies, and knows where it stands.
#include "coordinator/standby/state_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "coordinator/store/backup.h"
#include "coordinator/store/store.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_dump.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

// A leader whose changes are handed on by the test.
class Led : public Replicator {
 public:
  explicit Led(uint64_t term) : term_(term) { store_->journal().SetReplicator(this); }
  uint64_t term() const override { return term_; }
  StatusOr<Held> Secure(const v1::StoreChange& change) override {
    sent_.push_back(change);
    if (dies_) return absl::AbortedError("it is gone");
    return Held::kBoth;
  }
  void Committed(const History&) override {}

  std::string Path() const { return folder_.path() + "/store.db"; }
  // Returns the next change; a leader that `dies` does not commit it.
  v1::StoreChange Next(uint64_t event, bool dies = false) {
    dies_ = dies;
    write::LogEvent log;
    log.event.set_sequence(event);
    EXPECT_EQ(store_->Apply({log}).ok(), !dies);
    return sent_.back();
  }
  v1::StoreChange BeginTerm() {
    dies_ = false;
    EXPECT_TRUE(
        store_->BeginTerm({.tenure = std::string(16, 't'), .seat = "s", .address = "h:1"}).ok());
    return sent_.back();
  }
  // What a follower gets that needs the whole store.
  std::string Whole() const {
    const std::string path = folder_.path() + "/whole.db";
    std::filesystem::remove(path);
    EXPECT_TRUE(StoreCopy::Begin(Path()).value().WriteTo(path).ok());
    return ReadFile(path).value();
  }

  uint64_t term_;
  std::vector<v1::StoreChange> sent_;

 private:
  bool dies_ = false;
  testing::TempDir folder_;
  std::unique_ptr<Store> store_ = Store::Open(folder_.path()).value();
};

class StateCopyTest : public ::testing::Test {
 protected:
  std::string Path() const { return folder_.path() + "/store.db"; }
  StateCopy Open() { return StateCopy::Open(folder_.path(), /*taken_over=*/true).value(); }
  static void Copy(StateCopy& copy, const Led& leader) {
    const std::string whole = leader.Whole();
    v1::FollowedMessage::Begin begin;
    begin.set_authority("secret");
    begin.set_store_bytes(whole.size());
    ASSERT_TRUE(copy.Begin(begin).ok());
    EXPECT_EQ(copy.standing(), std::nullopt);
    ASSERT_TRUE(copy.Append(whole).ok());
    ASSERT_TRUE(copy.complete());
  }
  // Goes on after a change that both have.
  static Status Resume(StateCopy& copy, uint64_t after) {
    v1::FollowedMessage::Begin begin;
    begin.set_authority("secret");
    begin.set_resume_after(after);
    return copy.Begin(begin);
  }
  int64_t Events() {
    auto store = sqlite::Database::Open(Path(), SQLITE_OPEN_READWRITE).value();
    return *store.QueryInt("SELECT count(*) FROM events");
  }
  testing::TempDir folder_;
};

TEST_F(StateCopyTest, AChangeIsAppliedWhenItIsCommitted) {
  Led leader(1);
  leader.Next(1);
  StateCopy copy = Open();
  EXPECT_EQ(copy.standing(), std::nullopt);
  Copy(copy, leader);
  EXPECT_EQ(copy.standing()->applied.number, 1u);
  const v1::StoreChange two = leader.Next(2), three = leader.Next(3);
  ASSERT_TRUE(copy.Log(two, 1).ok());
  EXPECT_EQ(Events(), 1);
  ASSERT_TRUE(copy.Log(two, 1).ok());  // it is there already
  ASSERT_TRUE(copy.Log(three, 2).ok());
  EXPECT_EQ(Events(), 2);
  EXPECT_EQ(copy.standing()->logged(), HistoryOf(three));
  ASSERT_TRUE(copy.Apply(3).ok());
  EXPECT_EQ(DumpStore(Path()), DumpStore(leader.Path()));
}

// Neither a new process nor a new leader begins with a copy of everything.
TEST_F(StateCopyTest, ACopyKnowsWhereItStands) {
  Led leader(1);
  leader.Next(1);
  std::optional<StateCopy> copy = Open();
  Copy(*copy, leader);
  ASSERT_TRUE(copy->Log(leader.Next(2), 1).ok());
  const Standing standing = *copy->standing();
  EXPECT_EQ(standing.tail.size(), 1u);
  copy.reset();
  copy.emplace(Open());
  EXPECT_EQ(copy->standing(), standing);
  const v1::StoreChange three = leader.Next(3);
  ChangeReader reader = ChangeReader::Begin(leader.Path()).value();
  ASSERT_EQ(*reader.Resume(copy->standing()), 2u);
  ASSERT_TRUE(Resume(*copy, 2).ok());
  ASSERT_TRUE(copy->Log(**reader.Next(), 3).ok());
  EXPECT_EQ(copy->standing()->applied, HistoryOf(three));
  EXPECT_EQ(DumpStore(Path()), DumpStore(leader.Path()));
}

// The leader died before it committed, and began a new term without that change.
TEST_F(StateCopyTest, ALaterTermReplacesWhatDiedWithItsLeader) {
  Led leader(1);
  leader.Next(1);
  StateCopy copy = Open();
  Copy(copy, leader);
  ASSERT_TRUE(copy.Log(leader.Next(2, /*dies=*/true), 1).ok());
  leader.term_ = 2;
  const v1::StoreChange begins = leader.BeginTerm();
  EXPECT_EQ(begins.number(), 2u);
  ChangeReader reader = ChangeReader::Begin(leader.Path()).value();
  ASSERT_EQ(*reader.Resume(copy.standing()), 1u);
  ASSERT_TRUE(Resume(copy, 1).ok());
  ASSERT_TRUE(copy.Log(**reader.Next(), 2).ok());
  EXPECT_EQ(copy.standing()->applied, HistoryOf(begins));
  EXPECT_EQ(Events(), 1);
  EXPECT_EQ(DumpStore(Path()), DumpStore(leader.Path()));
}

// Never in a pair that keeps the rules, but a disk may lie.
TEST_F(StateCopyTest, ACopyThatDiffersAsksForEverything) {
  Led leader(1), other(1);
  leader.Next(1);
  other.Next(9);
  StateCopy copy = Open();
  Copy(copy, leader);
  const Status differs = copy.Log(other.Next(10), 2);
  EXPECT_TRUE(absl::IsDataLoss(differs)) << differs;
  EXPECT_THAT(differs.ToString(), HasSubstr("a whole copy is needed"));
  EXPECT_EQ(copy.standing(), std::nullopt);
  Copy(copy, other);
  EXPECT_EQ(DumpStore(Path()), DumpStore(other.Path()));
  // A gap is no difference.
  other.Next(11);
  EXPECT_TRUE(absl::IsDataLoss(copy.Log(other.Next(12), 2)));
  EXPECT_NE(copy.standing(), std::nullopt);
  EXPECT_TRUE(absl::IsDataLoss(Resume(copy, 7)));
}

TEST_F(StateCopyTest, TheTailCanBeForgottenAndNothingElse) {
  Led leader(1);
  leader.Next(1);
  StateCopy copy = Open();
  Copy(copy, leader);
  ASSERT_TRUE(copy.Log(leader.Next(2), 1).ok());
  EXPECT_FALSE(copy.CutTail(0).ok());
  ASSERT_TRUE(copy.CutTail(1).ok());
  EXPECT_TRUE(copy.standing()->tail.empty());
  ASSERT_TRUE(copy.Log(leader.sent_[1], 2).ok());
  EXPECT_EQ(DumpStore(Path()), DumpStore(leader.Path()));
}

TEST_F(StateCopyTest, AStoreThatCannotBeUsedIsReplaced) {
  ASSERT_TRUE(WriteFileAtomic(Path(), std::string(5000, 'x')).ok());
  StateCopy copy = Open();
  EXPECT_EQ(copy.standing(), std::nullopt);
  Led leader(1);
  leader.Next(1);
  Copy(copy, leader);
  EXPECT_EQ(DumpStore(Path()), DumpStore(leader.Path()));
}

}  // namespace
}  // namespace longhaul::coordinator
