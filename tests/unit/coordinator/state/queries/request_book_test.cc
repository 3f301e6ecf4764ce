// The book of answered calls forgets the oldest, and tells which.
#include "coordinator/state/queries/request_book.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

const MonoTime kStart = MonoTime() + absl::Hours(1);

AnsweredCall CallOf(const std::string& owner, const std::string& id) {
  return {.owner = owner, .id = id, .kind = "stop", .reply = "of " + id};
}

TEST(RequestBookTest, OwnersDoNotSeeEachOthersAnswers) {
  RequestBook book;
  book.Add(CallOf("ann", "1"), kStart);
  ASSERT_NE(book.Find("ann", "1"), nullptr);
  EXPECT_EQ(book.Find("ann", "1")->reply, "of 1");
  EXPECT_EQ(book.Find("bob", "1"), nullptr);
  EXPECT_EQ(book.Find("", "1"), nullptr);
  EXPECT_EQ(book.Find("ann", "2"), nullptr);
}

TEST(RequestBookTest, AnswersGoAfterADay) {
  RequestBook book;
  book.Add(CallOf("ann", "1"), kStart);
  book.Add(CallOf("bob", "2"), kStart + absl::Seconds(1));
  const MonoTime day = kStart + kAnswersKept;
  EXPECT_THAT(book.Add(CallOf("ann", "3"), day), IsEmpty());
  EXPECT_THAT(book.Add(CallOf("ann", "4"), day + absl::Milliseconds(1)),
              ElementsAre(Pair("ann", "1")));
  EXPECT_EQ(book.Find("ann", "1"), nullptr);
  EXPECT_NE(book.Find("bob", "2"), nullptr);
}

TEST(RequestBookTest, AMemberCrowdsOutItself) {
  RequestBook book;
  book.Add(CallOf("bob", "first"), kStart);
  for (size_t i = 0; i < kMaxAnswersOfMember; ++i) {
    EXPECT_THAT(book.Add(CallOf("ann", fmt::format("{}", i)), kStart), IsEmpty());
  }
  EXPECT_THAT(book.Add(CallOf("ann", "more"), kStart), ElementsAre(Pair("ann", "0")));
  EXPECT_NE(book.Find("bob", "first"), nullptr);
  // The same id again takes no more room.
  EXPECT_THAT(book.Add(CallOf("ann", "more"), kStart), IsEmpty());
  EXPECT_EQ(book.size(), kMaxAnswersOfMember + 1);
}

TEST(RequestBookTest, TheOldestOfAllGo) {
  RequestBook book;
  for (size_t i = 0; i < kMaxAnswers; ++i) {
    book.Add(CallOf(fmt::format("member{}", i % 100), fmt::format("{}", i)), kStart);
  }
  EXPECT_THAT(book.Add(CallOf("ann", "more"), kStart), ElementsAre(Pair("member0", "0")));
  EXPECT_EQ(book.size(), kMaxAnswers);
}

}  // namespace
}  // namespace longhaul::coordinator
