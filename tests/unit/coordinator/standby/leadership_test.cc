#include "coordinator/standby/leadership.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

LeadershipRecord Fenced() {
  return {.role = LeaderRole::kFenced, .term = 4, .successor = "b:7070"};
}
LeadershipRecord Standby(bool whole) {
  return {.role = LeaderRole::kStandby, .term = 3, .predecessor = "a:7070", .whole = whole};
}

TEST(LeadershipTest, ARecordIsReadAsItWasWritten) {
  const testing::TempDir folder;
  EXPECT_EQ(*ReadLeadership(folder.path()), LeadershipRecord());  // there is none
  for (const LeadershipRecord& record :
       {Fenced(), Standby(true), Standby(false),
        LeadershipRecord{.term = 9, .standby = "b:1", .predecessor = "c:2"},
        LeadershipRecord{.term = 9, .standby = "b:1", .standby_is_stale = true}}) {
    ASSERT_TRUE(WriteLeadership(folder.path(), record).ok());
    EXPECT_EQ(*ReadLeadership(folder.path()), record);
  }
}

TEST(LeadershipTest, TheFileLooksLikeThis) {
  EXPECT_EQ(ToJson(Standby(true)),
            "{\n  \"role\": \"standby\",\n  \"term\": 3,\n  \"predecessor\": \"a:7070\",\n"
            "  \"whole\": true\n}\n");
  EXPECT_EQ(ToJson(Fenced()),
            "{\n  \"role\": \"fenced\",\n  \"term\": 4,\n  \"successor\": \"b:7070\"\n}\n");
}

TEST(LeadershipTest, ADamagedFileIsNotTakenForNone) {
  const testing::TempDir folder;
  for (const char* text :
       {"", "[]", "{", R"({"role": "king", "term": 1})", R"({"role": "standby"})",
        R"({"role": "standby", "term": 0})", R"({"role": "standby", "term": "x"})",
        R"({"role": "standby", "term": 1, "whole": 3})"}) {
    ASSERT_TRUE(WriteFileAtomic(folder.path() + "/leadership.json", text).ok());
    const Status status = ReadLeadership(folder.path()).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << text << status;
    EXPECT_THAT(status.ToString(), HasSubstr("leadership.json is damaged")) << text;
  }
}

TEST(LeadershipTest, OnlyACoordinatorBeginsToLeadByItself) {
  const LeadershipRecord leads{.term = 5, .standby = "b:7070"};
  EXPECT_EQ(*BeginToLead(leads, Claim::kOwn, kNow), leads);
  EXPECT_THAT(BeginToLead(Fenced(), Claim::kOwn, kNow).status().ToString(),
              HasSubstr("another coordinator has taken over: b:7070 (term 4)"));
  EXPECT_THAT(BeginToLead(Standby(false), Claim::kOwn, kNow).status().ToString(),
              HasSubstr("a standby of a:7070, which had not all"));
  EXPECT_THAT(BeginToLead(Standby(true), Claim::kOwn, kNow).status().ToString(),
              HasSubstr("--force takes over from it now"));
}

TEST(LeadershipTest, ATakeoverBeginsANewTermAndKnowsWhomToTell) {
  EXPECT_EQ(*BeginToLead(Standby(true), Claim::kTakeover, kNow),
            (LeadershipRecord{.term = 4, .predecessor = "a:7070"}));
}

// A coordinator may not have heard of every takeover.
TEST(LeadershipTest, AForcedTermIsNewerThanAnyThatOthersMayHave) {
  const LeadershipRecord leads{.term = 5, .standby = "b:7070"};
  for (const auto& [record, told] :
       {std::pair(Standby(false), "a:7070"), {Fenced(), "b:7070"}, {leads, "b:7070"}}) {
    EXPECT_EQ(*BeginToLead(record, Claim::kForce, kNow),
              (LeadershipRecord{.term = 1'700'000'000, .predecessor = told}));
  }
  LeadershipRecord later = Fenced();
  later.term = 1'700'000'009;
  EXPECT_EQ(BeginToLead(later, Claim::kForce, kNow)->term, 1'700'000'010u);
  // No new term without a reason.
  for (const LeadershipRecord& record :
       {LeadershipRecord{.term = 5},
        LeadershipRecord{.term = 5, .standby = "b:7070", .standby_is_stale = true}}) {
    EXPECT_EQ(*BeginToLead(record, Claim::kForce, kNow), record);
  }
}

TEST(LeadershipTest, AStandbyThatWasAwayForTooLongIsWrittenDownUntilItFollowsAgain) {
  const testing::TempDir folder;
  Leadership leadership(folder.path(), {.term = 2});
  leadership.NoteStandbyStale();
  EXPECT_FALSE(leadership.has_standby().has_value());
  leadership.NoteStandby("b:7070");
  EXPECT_EQ(leadership.standby_away(), absl::ZeroDuration());
  leadership.NoteStandbyGone();
  EXPECT_GT(leadership.standby_away(), absl::ZeroDuration());
  leadership.NoteStandbyStale();
  EXPECT_EQ(leadership.has_standby(), false);
  EXPECT_TRUE(ReadLeadership(folder.path())->standby_is_stale);
  leadership.NoteStandby("b:7070");
  EXPECT_EQ(*ReadLeadership(folder.path()), (LeadershipRecord{.term = 2, .standby = "b:7070"}));
}

TEST(LeadershipTest, OneThatYieldsStaysSo) {
  const testing::TempDir folder;
  Leadership leadership(folder.path(), {.term = 2, .standby = "b:7070"});
  leadership.Yield(1, "old:1");
  leadership.Yield(2, "same:1");
  EXPECT_TRUE(leadership.failure().ok());
  leadership.Yield(3, "b:7070");
  EXPECT_THAT(leadership.failure().ToString(), HasSubstr("taken over: b:7070 (term 3)"));
  EXPECT_EQ(leadership.term(), 2u);
  leadership.NoteStandby("c:7070");
  leadership.ForgetPredecessor();
  EXPECT_EQ(*ReadLeadership(folder.path()),
            (LeadershipRecord{.role = LeaderRole::kFenced, .term = 3, .successor = "b:7070"}));
}

TEST(LeadershipTest, AStandbyThatWasThePredecessorKnows) {
  const testing::TempDir folder;
  Leadership leadership(folder.path(), {.term = 2, .predecessor = "a:7070"});
  leadership.NoteStandby("b:7070");
  EXPECT_EQ(leadership.record().predecessor, "a:7070");
  leadership.NoteStandby("a:7070");
  EXPECT_EQ(*ReadLeadership(folder.path()), (LeadershipRecord{.term = 2, .standby = "a:7070"}));
}

}  // namespace
}  // namespace longhaul::coordinator
