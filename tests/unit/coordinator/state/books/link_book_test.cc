#include "coordinator/state/books/link_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/state/books/now.h"

namespace longhaul::coordinator {
namespace {

const WorkerId kA("a"), kB("b"), kC("c");
Probe Between(const WorkerId& from, const WorkerId& to) {
  return {.id = 1, .edge = {EdgeId(0), from, to}, .transport = TransportKind::kGrpc};
}
constexpr ProbeResult kResult{.forward_bits_per_second = 40e6,
                              .backward_bits_per_second = 10e6,
                              .round_trip = absl::Milliseconds(20)};

TEST(LinkBook, HasBothDirectionsOfAMeasuredLink) {
  LinkBook book;
  EXPECT_EQ(book.Find(kA, kB), nullptr);
  book.Note(Between(kA, kB), kResult, kNow);
  ASSERT_NE(book.Find(kA, kB), nullptr);
  EXPECT_EQ(book.Find(kA, kB)->bits_per_second, 40e6);
  EXPECT_EQ(book.Find(kA, kB)->round_trip, absl::Milliseconds(20));
  EXPECT_EQ(book.Find(kA, kB)->transport, TransportKind::kGrpc);
  EXPECT_EQ(book.Find(kA, kB)->at, kNow);
  ASSERT_NE(book.Find(kB, kA), nullptr);
  EXPECT_EQ(book.Find(kB, kA)->bits_per_second, 10e6);
}

TEST(LinkBook, KeepsTheNewest) {
  LinkBook book;
  book.Note(Between(kA, kB), kResult, kNow);
  book.Note(Between(kB, kA), kResult, kNow + absl::Seconds(1));
  EXPECT_EQ(book.Find(kA, kB)->bits_per_second, 10e6);
  EXPECT_EQ(book.Find(kA, kB)->at, kNow + absl::Seconds(1));
}

TEST(LinkBook, RoundTripsAloneLeaveTheGoodputAsItWas) {
  LinkBook book;
  Probe trips = Between(kA, kB);
  trips.edge.round_trips_only = true;
  constexpr ProbeResult kTrips{.round_trip = absl::Milliseconds(5)};
  book.Note(trips, kTrips, kNow);
  ASSERT_NE(book.Find(kB, kA), nullptr);
  EXPECT_EQ(book.Find(kB, kA)->bits_per_second, 0);
  EXPECT_EQ(book.Find(kB, kA)->round_trip, absl::Milliseconds(5));
  book.Note(Between(kA, kB), kResult, kNow);
  book.Note(trips, kTrips, kNow + absl::Seconds(1));
  EXPECT_EQ(book.Find(kA, kB)->bits_per_second, 40e6);
  EXPECT_EQ(book.Find(kA, kB)->round_trip, absl::Milliseconds(5));
  EXPECT_EQ(book.Find(kA, kB)->at, kNow);  // of the goodput
}

TEST(LinkBook, ForgetsAPairAndAWorker) {
  LinkBook book;
  book.Note(Between(kA, kB), kResult, kNow);
  book.Note(Between(kB, kC), kResult, kNow);
  book.Note(Between(kA, kC), kResult, kNow);
  book.Drop(kB, kA);
  EXPECT_EQ(book.Find(kA, kB), nullptr);
  EXPECT_EQ(book.Find(kB, kA), nullptr);
  EXPECT_NE(book.Find(kB, kC), nullptr);
  book.Forget(kC);
  for (const WorkerId& other : {kA, kB}) {
    EXPECT_EQ(book.Find(other, kC), nullptr);
    EXPECT_EQ(book.Find(kC, other), nullptr);
  }
}

TEST(LinkBook, ListsDirectionsInTheOrderOfTheWorkers) {
  LinkBook book;
  book.Note(Between(kA, kB), kResult, kNow);
  book.Note(Between(kB, kC), kResult, kNow);
  const std::vector<WorkerId> all{kC, kB, kA}, some{kA, kB};
  std::string order;
  for (const LinkBook::Entry& entry : book.Among(all)) {
    order += entry.from.value() + entry.to.value() + " ";
  }
  EXPECT_EQ(order, "cb bc ba ab ");
  EXPECT_EQ(book.Among(some).size(), 2u);
}

}  // namespace
}  // namespace longhaul::coordinator
