// A copy of a store that logs and applies every change which its journal secures is the store, to
// the row.
#include "coordinator/store/journal.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <functional>
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

// Another coordinator, which has what was secured.
class Ear : public Replicator {
 public:
  uint64_t term() const override { return term_; }
  bool needs_sync() const override { return false; }  // for speed
  StatusOr<Held> Secure(const v1::StoreChange& change) override {
    LH_RETURN_IF_ERROR(refuses);
    secured.push_back(change);
    if (when_secured) when_secured();
    return Held::kBoth;
  }
  void Committed(const History& history) override {
    // Not before it is secured.
    ASSERT_FALSE(secured.empty());
    EXPECT_EQ(HistoryOf(secured.back()), history);
    committed = history;
  }
  std::vector<v1::StoreChange> secured;
  std::function<void()> when_secured;
  Status refuses;
  History committed;
  uint64_t term_ = 1;
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
    store_->journal().SetReplicator(&ear_);
    auto copy = StoreCopy::Begin(Original()).value();
    // What is written between the beginning and the copy is not in it.
    WriteSomething();
    EXPECT_TRUE(copy.WriteTo(Copy()).ok());
  }
  void Replay() {
    auto copy = sqlite::Database::Open(Copy(), SQLITE_OPEN_READWRITE).value();
    EXPECT_TRUE(copy.Execute("PRAGMA synchronous=OFF").ok());
    for (const v1::StoreChange& change : ear_.secured) {
      const NamedChange named{.change = change, .bytes = StoredBytes(change)};
      EXPECT_EQ(FitOf(ReadStanding(copy).value(), named), Fit::kNext);
      const Status status = copy.Transact([&]() -> Status {
        LH_RETURN_IF_ERROR(LogChange(copy, named));
        return ApplyLogged(copy, change.number());
      });
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
  Ear ear_;
  testing::TempDir folder_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Members> members_;
  std::mt19937 random_{7};
  std::vector<JoinToken> tokens_;
  uint64_t sequence_ = 0;
};

TEST_F(JournalTest, ACopyThatPlaysAllChangesIsTheStore) {
  for (int i = 0; i < 100; ++i) WriteSomething();
  Follow();
  for (int i = 0; i < 600; ++i) WriteSomething();
  EXPECT_GT(ear_.secured.size(), 300u);
  EXPECT_NE(DumpStore(Original()), DumpStore(Copy()));
  Replay();
  EXPECT_EQ(DumpStore(Original()), DumpStore(Copy()));
}

TEST_F(JournalTest, WhatIsRefusedIsToldNobody) {
  Follow();
  const size_t before = ear_.secured.size();
  EXPECT_FALSE(members_->Join("no token", {Role::kUser, "ann", "", "1"}, kNow, kUntil).ok());
  write::LogEvent event;
  event.event.set_sequence(1'000'000);
  EXPECT_TRUE(store_->Apply({event}).ok());
  EXPECT_EQ(ear_.secured.size(), before + 1);
  // The same number again: the transaction with its step fails whole.
  write::StepDone done{.run = RunId("run-0")};
  done.step.set_step(7);
  EXPECT_FALSE(store_->Apply({done, event}).ok());
  EXPECT_EQ(ear_.secured.size(), before + 1);
  Replay();
  EXPECT_EQ(DumpStore(Original()), DumpStore(Copy()));
}

// A change comes from another machine: it reaches the rows of the store's tables and nothing else.
TEST_F(JournalTest, AStrangeChangeIsRefusedWhole) {
  Follow();
  auto copy = sqlite::Database::Open(Copy(), SQLITE_OPEN_READWRITE).value();
  const std::string elsewhere = folder_.path() + "/elsewhere.db";
  for (const std::string& sql :
       {std::string("DELETE FROM changes"), std::string("UPDATE applied SET number=1"),
        "ATTACH DATABASE '" + elsewhere + "' AS other", std::string("CREATE TABLE other(a)"),
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

TEST_F(JournalTest, AChangeKnowsWhereItIs) {
  Written written;
  write::LogEvent event;
  event.event.set_sequence(1);
  ASSERT_TRUE(store_->Apply({event}, &written).ok());
  EXPECT_EQ(written.change, 1u);
  EXPECT_EQ(written.held, Held::kHere);
  ear_.term_ = 3;
  store_->journal().SetReplicator(&ear_);
  event.event.set_sequence(2);
  ASSERT_TRUE(store_->Apply({event}, &written).ok());
  EXPECT_EQ(written.change, 2u);
  EXPECT_EQ(written.held, Held::kBoth);
  EXPECT_EQ(ear_.committed, store_->journal().committed());
  EXPECT_EQ(ear_.committed.term, 3u);
  // A store that is opened again goes on from there.
  const History before = store_->journal().committed();
  members_.reset();
  store_.reset();
  store_ = Store::Open(folder_.path()).value();
  EXPECT_EQ(store_->journal().committed(), before);
}

// The other coordinator has the change first: a crash between the two never leaves it behind.
TEST_F(JournalTest, NothingIsCommittedBeforeItIsSecured) {
  store_->journal().SetReplicator(&ear_);
  size_t seen = 1;
  ear_.when_secured = [&] { seen = store_->Events("", 0, 10)->size(); };
  write::LogEvent event;
  event.event.set_sequence(1);
  ASSERT_TRUE(store_->Apply({event}).ok());
  EXPECT_EQ(seen, 0u);  // also: whoever reads does not wait for whoever writes
  EXPECT_EQ(store_->Events("", 0, 10)->size(), 1u);
}

TEST_F(JournalTest, WhatIsNotSecuredHasNotHappened) {
  store_->journal().SetReplicator(&ear_);
  ear_.refuses = absl::AbortedError("another coordinator leads");
  const std::string before = DumpStore(Original());
  write::LogEvent event;
  event.event.set_sequence(1);
  EXPECT_TRUE(absl::IsAborted(store_->Apply({event})));
  EXPECT_EQ(DumpStore(Original()), before);
  EXPECT_EQ(store_->journal().committed(), History{});
}

TEST_F(JournalTest, AnOlderTermWritesNothing) {
  ear_.term_ = 5;
  Follow();
  ear_.term_ = 4;
  write::LogEvent event;
  event.event.set_sequence(1'000'000);
  EXPECT_THAT(store_->Apply({event}).ToString(), HasSubstr("another one has led since"));
}

// The other coordinator has stored the change, so this one may not take it back.
TEST_F(JournalTest, ASecuredChangeIsCommittedWhateverItTakes) {
  store_->journal().SetReplicator(&ear_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const auto limit = [&](rlim_t bytes) {
    const rlimit now{.rlim_cur = bytes, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  };
  // No file takes further bytes, from the moment on at which the change is secured.
  ear_.when_secured = [&] { limit(1); };
  int refused = 0;
  store_->journal().WhenRefused([&] {
    ++refused;
    limit(before.rlim_cur);
  });
  write::LogEvent event;
  event.event.set_sequence(1);
  Written written;
  const Status status = store_->Apply({event}, &written);
  limit(before.rlim_cur);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(written.change, 1u);
  ear_.when_secured = {};
  EXPECT_EQ(store_->Events("", 0, 10)->size(), 1u);
  EXPECT_EQ(ear_.secured.size(), 1u);
  EXPECT_EQ(ear_.committed, HistoryOf(ear_.secured.back()));
}

// What a follower has logged and not applied counts from the change on that begins a term.
TEST_F(JournalTest, ATermBeginsWithAChangeThatCommitsTheTail) {
  Follow();
  for (int i = 0; i < 20; ++i) WriteSomething();
  write::LogEvent event;
  event.event.set_sequence(1'000'000);
  ASSERT_TRUE(store_->Apply({event}).ok());
  Replay();
  {  // The newest is logged alone.
    auto copy = sqlite::Database::Open(Copy(), SQLITE_OPEN_READWRITE).value();
    const History newest = HistoryOf(ear_.secured.back());
    ASSERT_TRUE(copy.Execute("DELETE FROM events WHERE sequence=1000000").ok());
    ASSERT_TRUE(NoteApplied(copy, HistoryOf(ear_.secured.end()[-2])).ok());
    EXPECT_EQ(ReadStanding(copy)->tail, std::vector<History>{newest});
  }
  const testing::TempDir other;
  std::filesystem::copy_file(Copy(), other.path() + "/store.db");
  const auto store = Store::Open(other.path()).value();
  Ear third;
  third.term_ = 2;
  store->journal().SetReplicator(&third);
  event.event.set_sequence(1'000'001);
  EXPECT_THAT(store->Apply({event}).ToString(), HasSubstr("begins a term"));
  const auto newest = [&] { return store->NewestEvents("", 0, 1)->front().sequence(); };
  const TermBegun begun{.tenure = std::string(16, 't'), .seat = "seat", .address = "host:1"};
  third.refuses = absl::AbortedError("it was elected in vain");
  EXPECT_FALSE(store->BeginTerm(begun).ok());
  EXPECT_NE(newest(), 1'000'000u);  // neither counts without the other
  third.refuses = absl::OkStatus();
  third.when_secured = [&] { EXPECT_NE(newest(), 1'000'000u); };
  ASSERT_TRUE(store->BeginTerm(begun).ok());
  EXPECT_EQ(newest(), 1'000'000u);
  third.when_secured = {};
  EXPECT_TRUE(store->Apply({event}).ok());
  EXPECT_EQ(third.secured.size(), 2u);
  EXPECT_THAT(DumpStore(other.path() + "/store.db"), HasSubstr("'seat','host:1'"));
}

}  // namespace
}  // namespace longhaul::coordinator
