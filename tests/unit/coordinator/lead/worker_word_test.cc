// What a leader does when a worker has obeyed another one.
#include "coordinator/lead/worker_word.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

const Tenure kOwn(std::string(16, 'o'));
const Tenure kOther(std::string(16, 'x'));
constexpr int64_t kNow = 1'800'000'000;

class WorkerWordsTest : public ::testing::Test {
 protected:
  WordAnswer On(const WorkerWord& word) { return words.On(lead, word, now, kNow); }
  static WorkerWord Word(uint64_t term, const Tenure& tenure, uint64_t change = 0) {
    return {.worker = "w1",
            .term = term,
            .tenure = tenure,
            .leader_address = "other:7070",
            .change = change};
  }

  LeaderNow lead{.term = 5, .tenure = kOwn, .change = 100};
  WorkerWords words;
  MonoTime now = MonoTime() + absl::Hours(1);
};

TEST_F(WorkerWordsTest, WhoObeysThisOneOrAnOlderOneIsWelcome) {
  EXPECT_EQ(On({.worker = "new"}).step, WordStep::kWelcome);
  EXPECT_EQ(On(Word(4, kOther, 900)).step, WordStep::kWelcome);
  EXPECT_EQ(On(Word(5, kOwn, 100)).step, WordStep::kWelcome);
}

TEST_F(WorkerWordsTest, APairAsksItsVoters) {
  lead.has_voters = true;
  const WordAnswer newer = On(Word(7, kOther));
  EXPECT_EQ(newer.step, WordStep::kElect);
  EXPECT_EQ(newer.above, kNow - 1u) << "a term that begins like this is the time in seconds";
  EXPECT_THAT(newer.why, HasSubstr("worker w1 knows one of term 7"));
  now = now + absl::Minutes(1);
  EXPECT_EQ(On(Word(5, kOther)).step, WordStep::kElect);
}

TEST_F(WorkerWordsTest, ALoneOneAsksTheOtherLeaderFirst) {
  const WorkerWord word = Word(7, kOther);
  ASSERT_EQ(On(word).step, WordStep::kAskLeader);
  const WordAnswer leads = words.OnTermThere(lead, word, 7, now);
  EXPECT_EQ(leads.step, WordStep::kStepDown);
  EXPECT_EQ(leads.above, 7u);
  const WordAnswer gone = words.OnTermThere(lead, word, std::nullopt, now);
  EXPECT_EQ(gone.step, WordStep::kRaise);
  EXPECT_EQ(gone.above, kNow - 1u);
}

TEST_F(WorkerWordsTest, ALoneOneRaisesItsTermAtItsOwnAddress) {
  lead.is_here = true;
  EXPECT_EQ(On(Word(7, kOther)).step, WordStep::kRaise);
}

TEST_F(WorkerWordsTest, WhoHadAStandbyNeedsAPerson) {
  lead.had_standby = true;
  const WordAnswer answer = words.OnTermThere(lead, Word(7, kOther), std::nullopt, now);
  EXPECT_EQ(answer.step, WordStep::kRefuse);
  EXPECT_THAT(answer.why, HasSubstr("--force"));
}

TEST_F(WorkerWordsTest, TimeThatWentBackBeginsANewTerm) {
  const WordAnswer answer = On(Word(5, kOwn, 101));
  EXPECT_EQ(answer.step, WordStep::kRaise);
  EXPECT_THAT(answer.why, HasSubstr("has seen change 101 of this term"));
}

TEST_F(WorkerWordsTest, TermsCannotBeUsedUp) {
  lead.is_here = true;
  EXPECT_EQ(On(Word(kNow + (uint64_t{1} << 32) + 1, kOther)).step, WordStep::kRefuse);
  EXPECT_EQ(On(Word(~uint64_t{0}, kOther)).step, WordStep::kRefuse);
  // As `--force` begins one.
  EXPECT_EQ(On(Word(kNow + 60, kOther)).step, WordStep::kRaise);
  EXPECT_EQ(On(Word(kNow + 70, kOther)).step, WordStep::kRefuse) << "twice within a minute";
  now = now + absl::Minutes(1);
  EXPECT_EQ(On(Word(kNow + 70, kOther)).step, WordStep::kRaise);
}

// A coordinator may restart for each term, so it remembers nothing but the term.
TEST_F(WorkerWordsTest, ANewProcessDoesNotBeginAnotherTermAtOnce) {
  lead.is_here = true;
  lead.term = kNow - 30;
  EXPECT_EQ(On(Word(kNow + 60, kOther)).step, WordStep::kRefuse);
  lead.term = kNow + 1'000'000;
  EXPECT_EQ(On(Word(kNow + 1'000'001, kOther)).step, WordStep::kRefuse);
  lead.term = kNow - 60;
  EXPECT_EQ(On(Word(kNow + 60, kOther)).step, WordStep::kRaise);
}

TEST_F(WorkerWordsTest, RecordsThatWerePutBackShow) {
  EXPECT_FALSE(WasPutBack(lead, Word(4, kOther, 90), /*at_start=*/90));
  EXPECT_TRUE(WasPutBack(lead, Word(4, kOther, 91), /*at_start=*/90));
  EXPECT_FALSE(WasPutBack(lead, Word(5, kOwn, 95), /*at_start=*/90));
}

}  // namespace
}  // namespace longhaul::coordinator
