// The book of who reaches whom, spoken to directly: no coordinator, a clock of the test.
#include "coordinator/state/books/reach_book.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Worker = ReachBook::Worker;
using News = ReachBook::News;
using Question = ReachBook::Question;

Worker Named(const std::string& name, std::vector<std::string> addresses) {
  return {WorkerId("id-" + name), name, {{"grpc", std::move(addresses)}}};
}
Worker Named(const std::string& name) {
  return Named(name, {name + ":1"});
}

class ReachBookTest : public ::testing::Test {
 protected:
  News Come(const Worker& worker) { return book.Come(worker, now); }
  // The dialler's answer: the same problem at every address; "": reached.
  News Answer(const Question& question, const std::string& problem) {
    v1::ReachTried tried;
    tried.set_check(question.check);
    for (size_t i = 0; i < question.addresses.size(); ++i) tried.add_problems(problem);
    return book.Answer(question.dialler, tried, now);
  }
  // a and b have come and neither reaches the other.
  void CutOff() {
    Come(Named("a"));
    for (const Question& question : Come(Named("b")).questions) Answer(question, "no route");
    book.PassTime(now);
  }
  News After(absl::Duration time) {
    now = now + time;
    return book.PassTime(now);
  }

  static constexpr absl::Duration kPatience = absl::Seconds(10);
  MonoTime now = MonoTime() + absl::Hours(1);
  ReachBook book{{.patience = kPatience,
                  .secret = "secret",
                  .first_check = 7,
                  .label = [](const WorkerId& id) { return id.value().substr(3); }}};
  const WorkerId a{"id-a"}, b{"id-b"};
};

TEST_F(ReachBookTest, AsksBothWaysOnceBothAreConnected) {
  EXPECT_THAT(Come(Named("a")).questions, IsEmpty());
  const News news = Come(Named("b"));
  ASSERT_THAT(news.questions, SizeIs(2));
  const Question &to_b = news.questions[0], &to_a = news.questions[1];
  EXPECT_EQ(to_b.check, 7u);
  EXPECT_EQ(to_b.dialler, a);
  EXPECT_EQ(to_b.dialled, b);
  EXPECT_THAT(to_b.addresses, ElementsAre("b:1"));
  EXPECT_EQ(to_a.dialler, b);
  EXPECT_THAT(to_a.addresses, ElementsAre("a:1"));
  EXPECT_EQ(to_a.link_secret.size(), 32u);
  EXPECT_NE(to_a.link_secret, to_b.link_secret);
  EXPECT_EQ(book.NextWake(), now + kPatience);
  book.CheckInvariants();
}

// Neighbours change with each worker that comes, and the coordinator has enough to do.
TEST_F(ReachBookTest, ACrowdDialsWhenItHasCome) {
  constexpr int kWorkers = 200;
  size_t asked = 0, early = 0;
  for (int i = 0; i < kWorkers; ++i) {
    asked += Come(Named(fmt::format("w{}", i))).questions.size();
    now += absl::Milliseconds(10);
    asked += book.PassTime(now).questions.size();
    if (i == kWorkers / 2) early = asked;
  }
  EXPECT_EQ(asked, early);
  const WorkerId first("id-w198"), second("id-w199"), other("id-w9");
  EXPECT_TRUE(book.IsAsking(first, second, "grpc"));
  EXPECT_TRUE(book.IsAsking(other, second, "grpc"));
  book.Leave(WorkerId("id-w150"));
  book.CheckInvariants();
  EXPECT_LE(book.NextWake(), now + absl::Seconds(2));
  asked += After(absl::Seconds(2)).questions.size();
  // Each of the ring tries eight others, and is tried by them.
  EXPECT_GE(asked, size_t{kWorkers - 1} * 8);
  EXPECT_TRUE(book.IsAsking(first, second, "grpc"));
  EXPECT_FALSE(book.IsAsking(other, second, "grpc"));
  book.CheckInvariants();
  // Later ones are no crowd.
  EXPECT_THAT(Come(Named("w200")).questions, SizeIs(16));
}

// Workers that come and go all the time keep nobody from trying the others.
TEST_F(ReachBookTest, ACrowdThatDoesNotEndDialsAllTheSame) {
  size_t asked = 0;
  for (int i = 0; i < 100; ++i) Come(Named(fmt::format("w{}", i)));
  for (int second = 0; second < 25; ++second) {
    asked += Come(Named("w0")).questions.size();
    asked += After(absl::Seconds(1)).questions.size();
  }
  EXPECT_GT(asked, 0u);
}

TEST_F(ReachBookTest, ThoseWithoutAnAddressDialAndAreNotDialled) {
  Come(Named("a", {}));
  const News news = Come(Named("b"));
  ASSERT_THAT(news.questions, SizeIs(1));
  EXPECT_EQ(news.questions[0].dialler, a);
  // One failure decides: b cannot dial.
  EXPECT_THAT(Answer(news.questions[0], "refused").sentences,
              ElementsAre("workers a and b cannot talk over grpc: a does not reach b at b:1 "
                          "(refused)"));
}

TEST_F(ReachBookTest, AnAnswerEndsItsQuestionAndAnotherCountsForNothing) {
  Come(Named("a"));
  const Question to_b = Come(Named("b")).questions[0];
  EXPECT_TRUE(book.IsAsking(b, a, "grpc"));
  Question of_b = to_b;
  of_b.dialler = b;
  EXPECT_FALSE(Answer(of_b, "").has_changed);  // it was not b who was asked
  Question of_two = to_b;
  of_two.addresses = {"b:1", "b:2"};
  EXPECT_FALSE(Answer(of_two, "").has_changed);
  EXPECT_TRUE(Answer(to_b, "").has_changed);
  EXPECT_FALSE(Answer(to_b, "no route").has_changed);  // said twice
  EXPECT_THAT(book.FailuresOf(a), IsEmpty());
  EXPECT_EQ(book.StandingOf(a).talks_to, 1u);
  book.CheckInvariants();
}

TEST_F(ReachBookTest, TheLowerOneDialsUnlessItIsKnownNotToReachTheUpperOne) {
  Come(Named("a"));
  const News news = Come(Named("b"));
  const Question &to_b = news.questions[0], &to_a = news.questions[1];
  EXPECT_TRUE(book.IsAsking(a, b, "grpc"));
  EXPECT_FALSE(book.IsAsking(a, b, "ucx"));
  // The word of b, which is below a, decides: it reached a, so the other answer is not waited for.
  Answer(to_a, "");
  EXPECT_FALSE(book.IsAsking(a, b, "grpc"));
  EXPECT_TRUE(book.IsAsking(b, a, "grpc"));
  Answer(to_b, "");
  EXPECT_FALSE(book.IsAsking(b, a, "grpc"));
}

TEST_F(ReachBookTest, WaitsForTheUpperOneWhereTheLowerOneDoesNotReachIt) {
  Come(Named("a"));
  const News news = Come(Named("b"));
  Answer(news.questions[1], "no route");
  EXPECT_TRUE(book.IsAsking(a, b, "grpc"));
  Answer(news.questions[0], "");
  EXPECT_FALSE(book.IsAsking(a, b, "grpc"));
}

TEST_F(ReachBookTest, APairIsCutOffWhenNeitherReachesTheOther) {
  Come(Named("b"));
  const News news = Come(Named("a"));
  EXPECT_THAT(Answer(news.questions[0], "no route").sentences, IsEmpty());
  // The first name comes first, whoever answered last.
  EXPECT_THAT(Answer(news.questions[1], "refused").sentences,
              ElementsAre("workers a and b cannot talk over grpc: a does not reach b at b:1 "
                          "(refused); b does not reach a at a:1 (no route)"));
  const ReachBook::Standing standing = book.StandingOf(a);
  EXPECT_EQ(standing.talks_to, 0u);
  ASSERT_THAT(standing.cut_off, SizeIs(1));
  EXPECT_EQ(standing.cut_off[0].name, "b");
  EXPECT_EQ(standing.cut_off[0].transport, "grpc");
  EXPECT_EQ(standing.cut_off[0].at, now);
  ASSERT_THAT(book.FailuresOf(b), SizeIs(1));
  EXPECT_EQ(book.FailuresOf(b)[0].to, a);
  EXPECT_THAT(book.PassTime(now).sentences,
              ElementsAre(HasSubstr("nobody reaches worker a at a:1 (grpc), tried from b"),
                          HasSubstr("nobody reaches worker b at b:1 (grpc), tried from a")));
  EXPECT_THAT(book.PassTime(now).sentences, IsEmpty());
}

TEST_F(ReachBookTest, ThoseThatAreCutOffAreAskedAgainUntilTheyTalk) {
  CutOff();
  EXPECT_THAT(After(absl::Seconds(29)).questions, IsEmpty());
  const News again = After(absl::Seconds(1));
  ASSERT_THAT(again.questions, SizeIs(2));
  EXPECT_EQ(book.StandingOf(a).cut_off[0].at, now);
  // Still no way: no news for people.
  for (const Question& question : again.questions) {
    EXPECT_THAT(Answer(question, "no route").sentences, IsEmpty());
  }
  const News once_more = After(absl::Seconds(30));
  ASSERT_THAT(once_more.questions, SizeIs(2));
  EXPECT_THAT(Answer(once_more.questions[0], "").sentences,
              ElementsAre("workers a and b can talk over grpc now"));
  EXPECT_THAT(book.StandingOf(a).cut_off, IsEmpty());
  EXPECT_EQ(book.StandingOf(a).talks_to, 1u);
  book.CheckInvariants();
}

TEST_F(ReachBookTest, ThoseThatAreCutOffAreAskedAgainOnceBothAreConnected) {
  CutOff();
  book.Leave(b);
  EXPECT_THAT(After(absl::Seconds(60)).questions, IsEmpty());
  EXPECT_EQ(book.NextWake(), MonoTime::max());
  EXPECT_THAT(book.StandingOf(a).cut_off, IsEmpty());  // of those that are connected
  EXPECT_THAT(Come(Named("b")).questions, IsEmpty());
  EXPECT_THAT(book.StandingOf(a).cut_off, SizeIs(1));
  EXPECT_THAT(book.PassTime(now).questions, SizeIs(2));
}

TEST_F(ReachBookTest, ANewSessionAsksAnewWhatWasNotAnswered) {
  Come(Named("a"));
  const News first = Come(Named("b"));
  Answer(first.questions[0], "");
  const News second = Come(Named("b"));
  ASSERT_THAT(second.questions, SizeIs(1));
  EXPECT_EQ(second.questions[0].dialler, b);
  EXPECT_NE(second.questions[0].check, first.questions[1].check);
  EXPECT_FALSE(Answer(first.questions[1], "").has_changed);  // its question is void
}

TEST_F(ReachBookTest, AQuestionWithoutAnAnswerLeavesUnknownWhatItAsked) {
  Come(Named("a"));
  Come(Named("b"));
  EXPECT_TRUE(book.IsAsking(a, b, "grpc"));
  EXPECT_THAT(After(kPatience).sentences, IsEmpty());
  EXPECT_FALSE(book.IsAsking(a, b, "grpc"));
  EXPECT_EQ(book.NextWake(), MonoTime::max());
  EXPECT_THAT(book.FailuresOf(a), IsEmpty());
  EXPECT_EQ(book.StandingOf(a).talks_to, 0u);
}

TEST_F(ReachBookTest, OfAForgottenWorkerNothingIsLeft) {
  CutOff();
  book.Forget(b);
  EXPECT_THAT(book.FailuresOf(a), IsEmpty());
  EXPECT_THAT(book.StandingOf(a).cut_off, IsEmpty());
  EXPECT_THAT(After(absl::Minutes(1)).questions, IsEmpty());
  EXPECT_EQ(book.NextWake(), MonoTime::max());
  EXPECT_THAT(Come(Named("b", {"elsewhere:1"})).questions, SizeIs(2));
  book.CheckInvariants();
}

TEST_F(ReachBookTest, OfManyAddressesTheFirstFourAreTriedAndCondemnNobody) {
  Come(Named("a", {}));
  const Worker many = Named("b", {"b:1", "b:2", "b:3", "b:4", "b:5", "b:6"});
  const News news = Come(many);
  EXPECT_THAT(news.sentences,
              ElementsAre(AllOf(HasSubstr("worker b has 6 addresses for grpc"),
                                HasSubstr("whether it is reached at b:5 b:6 is not known"))));
  ASSERT_THAT(news.questions, SizeIs(1));
  EXPECT_THAT(news.questions[0].addresses, ElementsAre("b:1", "b:2", "b:3", "b:4"));
  EXPECT_FALSE(Answer(news.questions[0], "no route").has_changed);
  EXPECT_THAT(book.StandingOf(a).cut_off, IsEmpty());
  EXPECT_THAT(book.PassTime(now).sentences, SizeIs(4));  // addresses that nobody reaches
  EXPECT_THAT(Come(many).sentences, IsEmpty());          // the same process: said already
}

TEST_F(ReachBookTest, OneWhoReachesAnAddressIsEnough) {
  for (const char* name : {"a", "b"}) Come(Named(name, {}));
  const News news = Come(Named("c"));
  ASSERT_THAT(news.questions, SizeIs(2));
  Answer(news.questions[0], "no route");
  EXPECT_THAT(book.PassTime(now).sentences, IsEmpty());  // the other one still tries
  Answer(news.questions[1], "");
  EXPECT_THAT(book.PassTime(now).sentences, IsEmpty());
}

TEST_F(ReachBookTest, OfManyTheNeighboursByNameAreAsked) {
  for (int i = 1; i <= 20; ++i) Come(Named(fmt::format("w{}", i)));
  const WorkerId last("id-w20");
  book.Forget(last);
  std::set<std::string> peers;
  for (const Question& question : Come(Named("w20")).questions) {
    if (question.dialler == last) peers.insert(question.dialled.value().substr(3));
  }
  // Four to each side, as people count; the first is beside the last.
  EXPECT_THAT(peers,
              ::testing::UnorderedElementsAre("w16", "w17", "w18", "w19", "w1", "w2", "w3", "w4"));
}

}  // namespace
}  // namespace longhaul::coordinator
