#include "coordinator/standby/leadership.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"
#include "proto/witness/wire.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

LeadershipRecord RecordOf(LeaderRole role, std::vector<std::string> in_sync) {
  LeadershipRecord record{.role = role, .peer = "b:7070"};
  record.seat = {.seat = "a", .other = "b", .term = 4, .in_sync = std::move(in_sync)};
  return record;
}

// ---- The file ----------------------------------------------------------------------

TEST(LeadershipRecordTest, ARecordIsReadAsItWasWritten) {
  const testing::TempDir folder;
  EXPECT_FALSE(HasLeadership(folder.path()));
  const LeadershipRecord fresh = *ReadLeadership(folder.path());  // there is none
  EXPECT_TRUE(fresh.leads_alone());
  EXPECT_FALSE(fresh.seat.seat.empty());
  for (const LeadershipRecord& record :
       {RecordOf(LeaderRole::kCoordinator, {"a"}), RecordOf(LeaderRole::kCoordinator, {"a", "b"}),
        RecordOf(LeaderRole::kStandby, {}), RecordOf(LeaderRole::kFenced, {"a"})}) {
    ASSERT_TRUE(WriteLeadership(folder.path(), record).ok());
    EXPECT_EQ(*ReadLeadership(folder.path()), record);
  }
}

TEST(LeadershipRecordTest, TheFileLooksLikeThis) {
  EXPECT_EQ(ToJson(RecordOf(LeaderRole::kStandby, {"a", "b"})),
            "{\n  \"role\": \"standby\",\n  \"term\": 4,\n  \"seat\": \"a\",\n"
            "  \"in_sync\": [\n    \"a\",\n    \"b\"\n  ],\n"
            "  \"other\": \"b\",\n  \"peer\": \"b:7070\"\n}\n");
}

TEST(LeadershipRecordTest, OnlyACoordinatorThatIsAloneInSyncLeadsWithoutAsking) {
  EXPECT_TRUE(RecordOf(LeaderRole::kCoordinator, {"a"}).leads_alone());
  EXPECT_FALSE(RecordOf(LeaderRole::kCoordinator, {"a", "b"}).leads_alone());
  EXPECT_FALSE(RecordOf(LeaderRole::kCoordinator, {"b"}).leads_alone());
  EXPECT_FALSE(RecordOf(LeaderRole::kStandby, {"a"}).leads_alone());
  EXPECT_FALSE(RecordOf(LeaderRole::kFenced, {"a"}).leads_alone());
}

TEST(LeadershipRecordTest, RecordsOfOlderVersionsGetASeat) {
  const LeadershipRecord led =
      *ParseLeadership(R"({"role": "coordinator", "term": 3, "standby": "b:1"})");
  EXPECT_TRUE(led.leads_alone());
  EXPECT_EQ(led.peer, "b:1");
  const LeadershipRecord followed =
      *ParseLeadership(R"({"role": "standby", "term": 3, "predecessor": "a:1", "whole": true})");
  EXPECT_TRUE(followed.seat.in_sync.empty());
  EXPECT_EQ(followed.peer, "a:1");
}

TEST(LeadershipRecordTest, ADamagedFileIsNotTakenForNone) {
  const testing::TempDir folder;
  for (const char* text :
       {"", "[]", "{", R"({"role": "king", "term": 1})", R"({"role": "standby"})",
        R"({"role": "standby", "term": 0})", R"({"role": "standby", "term": "x"})",
        R"({"role": "standby", "term": 1, "in_sync": 3})",
        R"({"role": "standby", "term": 1, "in_sync": ["b", "a"]})"}) {
    ASSERT_TRUE(WriteFileAtomic(folder.path() + "/leadership.json", text).ok());
    const Status status = ReadLeadership(folder.path()).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << text << status;
    EXPECT_THAT(status.ToString(), HasSubstr("leadership.json is damaged")) << text;
  }
}

// A coordinator may not have heard of every election.
TEST(LeadershipRecordTest, AForcedTermIsNewerThanAnyThatOthersMayHave) {
  EXPECT_EQ(TermOfForce(5, kNow), 1'700'000'000u);
  EXPECT_EQ(TermOfForce(1'700'000'009, kNow), 1'700'000'010u);
}

// ---- A leader ----------------------------------------------------------------------

// The follower's stream, and what came over it.
struct Sink : ChangeSink {
  void Changed(const v1::StoreChange& change) override { changes.push_back(change.number()); }
  void Drop(const Status& status) override { dropped = status; }
  void HandOver() override {}
  std::vector<uint64_t> changes;
  Status dropped;
};

class LeadershipTest : public ::testing::Test {
 protected:
  LeadershipTest() {
    LeadershipRecord record = NewLeadership();
    record.seat.seat = "a";
    record.seat.in_sync = {"a"};
    Seat seat(record.seat);
    EXPECT_TRUE(seat.LeadAlone(Tenure("tenure")));
    leadership_ = *Leadership::Begin(folder_.path(), record, seat);
    witness_.id = "w";
  }
  // The witness answers at once, on the thread that asks next, while it is there.
  void Start(bool with_witness) {
    leadership_->Start(
        {.ask_witness =
             [this](const witness::Request& request) {
               if (!there_) return false;
               const std::lock_guard lock(mutex_);
               ++asked_;
               requests_.push_back(request);
               return true;
             },
         .on_sure = [this](const Status& sure) { sure_ = sure.ok(); }},
        with_witness ? VotingWitness{.id = "w", .name = "witness"} : VotingWitness{});
    if (with_witness) {
      EXPECT_TRUE(leadership_->OnWitnessHello("witness", witness_).ok());
    }
    answers_ = std::thread([this] {
      while (!over_) {
        std::vector<witness::Request> requests;
        {
          const std::lock_guard lock(mutex_);
          requests.swap(requests_);
        }
        for (const witness::Request& request : requests) {
          v1::WitnessSays::Answer answer;
          const witness::Decision decision = witness::Decide(request, false, &witness_);
          answer.set_granted(decision.granted);
          answer.set_why(decision.why);
          *answer.mutable_record() = witness::ToProto(witness_);
          leadership_->OnWitnessAnswer(answer);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  ~LeadershipTest() override {
    leadership_->Close(absl::ZeroDuration());
    over_ = true;
    if (answers_.joinable()) answers_.join();
  }
  static v1::StoreChange Change(uint64_t number) {
    v1::StoreChange change;
    change.set_number(number);
    change.set_term(1);
    change.set_chain(number * 100);
    return change;
  }
  static History Named(uint64_t number) {
    return {.term = 1, .number = number, .chain = number * 100};
  }
  StatusOr<Held> Write(uint64_t number) {
    const StatusOr<Held> held = leadership_->Secure(Change(number));
    if (held.ok()) leadership_->Committed(Named(number));
    return held;
  }
  bool BecomesInSync() {
    const Deadline deadline = Deadline::After(absl::Seconds(30));
    while (leadership_->record().seat.in_sync.size() != 2) {
      if (deadline.Expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  testing::TempDir folder_;
  std::unique_ptr<Leadership> leadership_;
  witness::Record witness_;
  std::mutex mutex_;
  std::vector<witness::Request> requests_;
  std::atomic<bool> there_ = true, over_ = false, sure_ = true;
  std::atomic<size_t> asked_ = 0;  // requests to the witness
  std::thread answers_;
};

TEST_F(LeadershipTest, ALoneCoordinatorWaitsForNobody) {
  Start(/*with_witness=*/false);
  EXPECT_EQ(*Write(1), Held::kHere);
  EXPECT_TRUE(leadership_->sure().ok());
  EXPECT_FALSE(leadership_->has_standby().has_value());
  EXPECT_EQ(leadership_->committed(), 1u);
  EXPECT_EQ(ReadLeadership(folder_.path())->seat.term, 1u);
}

TEST_F(LeadershipTest, WithoutAWitnessTheFollowerIsNeverInSync) {
  Start(/*with_witness=*/false);
  const auto sink = std::make_shared<Sink>();
  ASSERT_TRUE(leadership_->Follow(sink, "b", 0, {}).ok());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(leadership_->Follow(std::make_shared<Sink>(), "b", 0, {})));
  leadership_->HasAll(sink.get(), "b", "b:7070");
  EXPECT_EQ(leadership_->has_standby(), true);
  EXPECT_EQ(leadership_->record().seat.in_sync.size(), 1u);
  // It is waited for, as long as it answers.
  std::atomic<bool> written = false;
  std::thread writer([&] {
    EXPECT_EQ(*Write(1), Held::kBoth);
    written = true;
  });
  while (!written) leadership_->Has(sink.get(), Named(1));
  writer.join();
  leadership_->Gone(sink.get());
  EXPECT_EQ(*Write(2), Held::kHere);
  EXPECT_THAT(leadership_->Info().notes(), HasSubstr("no witness"));
}

TEST_F(LeadershipTest, AChangeWaitsForBothAndForTheWitnessesConsentAfterThat) {
  Start(/*with_witness=*/true);
  EXPECT_EQ(*Write(1), Held::kHere);
  const auto sink = std::make_shared<Sink>();
  ASSERT_TRUE(leadership_->Follow(sink, "b", 0, {}).ok());
  leadership_->Has(sink.get(), Named(1));
  leadership_->HasAll(sink.get(), "b", "b:7070");
  ASSERT_TRUE(BecomesInSync());
  EXPECT_EQ(ReadLeadership(folder_.path())->seat.in_sync, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(leadership_->needs_sync());
  leadership_->Gone(sink.get());
  EXPECT_EQ(*Write(2), Held::kHere);
  EXPECT_EQ(ReadLeadership(folder_.path())->seat.in_sync, std::vector<std::string>{"a"});
  leadership_->Close(absl::ZeroDuration());
  over_ = true;
  answers_.join();
  EXPECT_EQ(witness_.in_sync, std::vector<std::string>{"a"});
}

TEST_F(LeadershipTest, WithoutBothNothingIsCommitted) {
  Start(/*with_witness=*/true);
  const auto sink = std::make_shared<Sink>();
  ASSERT_TRUE(leadership_->Follow(sink, "b", 0, {}).ok());
  leadership_->HasAll(sink.get(), "b", "b:7070");
  ASSERT_TRUE(BecomesInSync());
  there_ = false;
  leadership_->Gone(sink.get());
  leadership_->Close(absl::Milliseconds(50));
  const StatusOr<Held> held = Write(1);
  EXPECT_TRUE(absl::IsAborted(held.status())) << held.status();
  EXPECT_EQ(leadership_->committed(), 0u);
}

// The other coordinator is to be elected soon.
TEST_F(LeadershipTest, WithADiskThatStandsStillTheWitnessHearsNoBeats) {
  Start(/*with_witness=*/true);
  const auto sink = std::make_shared<Sink>();
  ASSERT_TRUE(leadership_->Follow(sink, "b", 0, {}).ok());
  leadership_->HasAll(sink.get(), "b", "b:7070");
  ASSERT_TRUE(BecomesInSync());
  std::atomic<bool> secured = false;
  std::thread writer([&] {
    EXPECT_EQ(*leadership_->Secure(Change(1)), Held::kBoth);
    secured = true;
  });
  while (!secured) leadership_->Has(sink.get(), Named(1));
  writer.join();
  // It is not committed. Beats come each second while all is well, so soon there are no more.
  size_t last = asked_;
  MonoTime changed = Now();
  const Deadline deadline = Deadline::After(absl::Seconds(30));
  while (Now() - changed < absl::Milliseconds(1800) && !deadline.Expired()) {
    if (last != asked_) changed = Now();
    last = asked_;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  leadership_->Committed(Named(1));
  while (asked_ == last && !deadline.Expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(deadline.Expired());
}

TEST_F(LeadershipTest, WhomTheWitnessHasReplacedLeadsNoMore) {
  Start(/*with_witness=*/true);
  witness::Record newer;
  newer.id = "w";
  newer.term = 7;
  newer.tenure = Tenure("other");
  newer.seat = "b";
  newer.in_sync = {"a", "b"};
  EXPECT_TRUE(leadership_->OnWitnessHello("witness", newer).ok());
  EXPECT_THAT(leadership_->failure().ToString(), HasSubstr("another coordinator leads: (term 7)"));
  EXPECT_TRUE(absl::IsAborted(Write(1).status()));
  const LeadershipRecord record = *ReadLeadership(folder_.path());
  EXPECT_EQ(record.role, LeaderRole::kFenced);
  EXPECT_EQ(record.term(), 7u);
  // Its own word that it is alone in sync was an old copy.
  EXPECT_EQ(record.seat.in_sync.size(), 2u);
}

TEST_F(LeadershipTest, AnotherWitnessDoesNotCount) {
  Start(/*with_witness=*/true);
  witness::Record other;
  other.id = "x";
  const Status status = leadership_->OnWitnessHello("other", other);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("the witness witness counts here"));
}

// An old copy of the records of a lone coordinator was put back.
TEST_F(LeadershipTest, AWorkerThatKnowsANewerTermMakesALoneLeaderBeginOne) {
  Start(/*with_witness=*/false);
  EXPECT_TRUE(leadership_->OnWorker({.worker = "w", .term = 0}).ok());
  EXPECT_TRUE(leadership_->OnWorker({.worker = "w", .term = 1, .tenure = Tenure("tenure")}).ok());
  EXPECT_FALSE(leadership_->begins_anew());
  const Status status = leadership_->OnWorker({.worker = "w", .term = 9, .tenure = Tenure("x")});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("term 9"));
  EXPECT_TRUE(leadership_->begins_anew());
  EXPECT_TRUE(absl::IsAborted(Write(1).status()));
  // The next process leads alone, above that term.
  const LeadershipRecord record = *ReadLeadership(folder_.path());
  EXPECT_TRUE(record.leads_alone());
  EXPECT_GE(record.term(), 9u);
}

}  // namespace
}  // namespace longhaul::coordinator
