// Which changes a follower takes, from where it resumes, and what a store keeps of its changes.
#include "coordinator/store/change_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/store/store.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

// A store's changes, in memory.
class Line {
 public:
  NamedChange Add(uint64_t term, const std::string& what) {
    v1::StoreChange change;
    change.add_statements()->set_sql(what);
    NamedChange named =
        NameChange(standing_, std::move(change), term, /*unix_ms=*/5, /*begins_term=*/true).value();
    standing_ = {.applied = named.history(), .tail = {}};
    at_[named.change.number()] = named.history();
    return named;
  }
  const Standing& standing() const { return standing_; }
  std::optional<History> At(uint64_t number) const {
    const auto found = at_.find(number);
    return found == at_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  Standing standing_;
  std::map<uint64_t, History> at_;
};

TEST(ChangeOrderTest, AChangeHasItsPlace) {
  Line leader;
  const NamedChange one = leader.Add(1, "a"), two = leader.Add(1, "b"), three = leader.Add(1, "c");
  const Standing empty, first{.applied = one.history(), .tail = {}},
      tail{.applied = one.history(), .tail = {two.history()}};
  EXPECT_EQ(FitOf(empty, one), Fit::kNext);
  EXPECT_EQ(FitOf(empty, two), Fit::kGap);
  EXPECT_EQ(FitOf(first, one), Fit::kKnown);
  EXPECT_EQ(FitOf(first, two), Fit::kNext);
  EXPECT_EQ(FitOf(tail, two), Fit::kKnown);
  EXPECT_EQ(FitOf(tail, three), Fit::kNext);
  EXPECT_EQ(FitOf(first, three), Fit::kGap);
}

TEST(ChangeOrderTest, OnlyALaterTermReplacesWhatIsNotApplied) {
  Line before;
  const NamedChange one = before.Add(1, "a");
  Line same = before, later = before, applied = before;
  const NamedChange dead = before.Add(1, "dead"), of_same = same.Add(1, "other"),
                    of_later = later.Add(2, "other");
  const Standing tail{.applied = one.history(), .tail = {dead.history()}};
  EXPECT_EQ(FitOf(tail, of_later), Fit::kReplacesTail);
  EXPECT_EQ(FitOf(tail, of_same), Fit::kDiffers);
  // Applied is for ever.
  EXPECT_EQ(FitOf({.applied = dead.history(), .tail = {}}, of_later), Fit::kDiffers);
}

// A change that follows another history has another chain, though term and number fit.
TEST(ChangeOrderTest, ChangesOfAnotherStoreDoNotFit) {
  Line one, other;
  one.Add(1, "a");
  other.Add(1, "b");
  EXPECT_EQ(FitOf(one.standing(), other.Add(1, "c")), Fit::kDiffers);
  NamedChange damaged = one.Add(1, "c");
  damaged.bytes.back() ^= 1;
  Line again;
  again.Add(1, "a");
  EXPECT_EQ(FitOf(again.standing(), damaged), Fit::kDiffers);
}

TEST(ChangeOrderTest, AFollowerResumesAfterWhatBothHave) {
  Line leader;
  const NamedChange one = leader.Add(1, "a");
  Line dead = leader;
  const NamedChange tail = dead.Add(1, "dead");
  leader.Add(2, "b");
  const auto at = [&](uint64_t number) { return leader.At(number); };
  EXPECT_EQ(ResumeAfter({.applied = one.history(), .tail = {*leader.At(2)}}, at), 2u);
  EXPECT_EQ(ResumeAfter({.applied = one.history(), .tail = {tail.history()}}, at), 1u);
  // The chain decides, not the number.
  EXPECT_EQ(ResumeAfter({.applied = tail.history(), .tail = {}}, at), std::nullopt);
  // What the leader keeps no longer, and stores that never had a change.
  EXPECT_EQ(ResumeAfter({.applied = one.history(), .tail = {}},
                        [](uint64_t) { return std::optional<History>(); }),
            std::nullopt);
  EXPECT_EQ(ResumeAfter({}, [](uint64_t) { return std::optional(History{}); }), std::nullopt);
}

class ChangeLogTest : public ::testing::Test {
 protected:
  std::string Path() const { return folder_.path() + "/store.db"; }
  void Write(uint64_t events) {
    for (uint64_t i = 0; i < events; ++i) {
      write::LogEvent event;
      event.event.set_sequence(++sequence_);
      ASSERT_TRUE(store_->Apply({event}).ok());
    }
  }
  testing::TempDir folder_;
  std::unique_ptr<Store> store_ = Store::Open(folder_.path()).value();
  uint64_t sequence_ = 0;
};

TEST_F(ChangeLogTest, AReaderGetsWhatAFollowerLacks) {
  Write(3);
  const Standing follower = store_->journal().standing();
  Write(2);
  ChangeReader reader = ChangeReader::Begin(Path()).value();
  Write(1);  // later than the reader's moment
  EXPECT_EQ(reader.newest().number, 5u);
  EXPECT_EQ(*reader.Resume(std::nullopt), std::nullopt);
  EXPECT_EQ(*reader.Next(), std::nullopt);
  EXPECT_EQ(*reader.Resume(follower), 3u);
  Standing standing = follower;
  for (uint64_t number = 4; number <= 5; ++number) {
    const std::optional<v1::StoreChange> change = reader.Next().value();
    ASSERT_TRUE(change.has_value());
    EXPECT_EQ(FitOf(standing, {.change = *change, .bytes = StoredBytes(*change)}), Fit::kNext);
    standing.applied = HistoryOf(*change);
  }
  EXPECT_EQ(*reader.Next(), std::nullopt);
  // One that is ahead, as a follower's tail may be, has lost its leader's last change.
  EXPECT_EQ(*reader.Resume(store_->journal().standing()), std::nullopt);
}

TEST_F(ChangeLogTest, OldChangesAreDeletedButWhatAFollowerLacks) {
  Write(20);
  auto database = sqlite::Database::Open(Path(), SQLITE_OPEN_READWRITE).value();
  const auto oldest = [&] { return *database.QueryInt("SELECT min(number) FROM changes"); };
  ChangeTrimmer trimmer({.changes = 16, .bytes = 1'000'000});
  ASSERT_TRUE(trimmer.Count(database).ok());
  ASSERT_TRUE(trimmer.Added(database, 0, /*keep_after=*/5).ok());
  EXPECT_EQ(oldest(), 6);
  ChangeTrimmer all({.changes = 1'000, .bytes = 1});
  ASSERT_TRUE(all.Count(database).ok());
  ASSERT_TRUE(all.Added(database, 0, /*keep_after=*/1'000).ok());
  EXPECT_EQ(oldest(), 20);  // the newest stays
  // A reader says at once that a whole copy is needed.
  ChangeReader reader = ChangeReader::Begin(Path()).value();
  EXPECT_EQ(*reader.Resume(Standing{.applied = {.term = 0, .number = 7, .chain = 1}, .tail = {}}),
            std::nullopt);
  Write(1);
  EXPECT_EQ(store_->journal().committed().number, 21u);
}

TEST_F(ChangeLogTest, TablesThatContradictEachOtherAreDamage) {
  Write(3);
  auto database = sqlite::Database::Open(Path(), SQLITE_OPEN_READWRITE).value();
  for (const char* sql : {"UPDATE applied SET number=1", "UPDATE applied SET chain=chain+1",
                          "DELETE FROM changes WHERE number=3; UPDATE applied SET number=1"}) {
    ASSERT_TRUE(database.Execute("BEGIN").ok());
    ASSERT_TRUE(database.Execute(sql).ok());
    const Status status = ReadStanding(database).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << sql << ": " << status;
    EXPECT_THAT(status.ToString(), HasSubstr("damaged"));
    ASSERT_TRUE(database.Execute("ROLLBACK").ok());
  }
}

}  // namespace
}  // namespace longhaul::coordinator
