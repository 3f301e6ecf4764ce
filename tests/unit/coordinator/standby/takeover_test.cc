#include "coordinator/standby/takeover.h"

#include <gtest/gtest.h>

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kMoment = absl::Milliseconds(1);

class TakeoverTest : public ::testing::Test {
 protected:
  Verdict After(absl::Duration silence) const { return Judge(contact_, contact_.heard + silence); }

  Contact contact_{.whole = true, .heard = Now(), .workers = {"a", "b", "c", "d"}, .have_come = {}};
};

TEST_F(TakeoverTest, NothingHappensWithinTheLease) {
  contact_.have_come = contact_.workers;
  EXPECT_EQ(After(absl::ZeroDuration()), Verdict::kWait);
  EXPECT_EQ(After(kLease - kMoment), Verdict::kWait);
  EXPECT_EQ(After(kLease), Verdict::kTakeOver);
}

TEST_F(TakeoverTest, MostWorkersHaveToCome) {
  contact_.have_come = {"a", "b", "x", "y", "z"};  // half, and strangers
  EXPECT_EQ(After(kLease), Verdict::kWait);
  contact_.have_come.insert("c");
  EXPECT_EQ(After(kLease), Verdict::kTakeOver);
}

TEST_F(TakeoverTest, WorkersThatStayAwayMeanThatTheCoordinatorLives) {
  contact_.have_come = {"a"};
  EXPECT_EQ(After(kWorkersCome - kMoment), Verdict::kWait);
  EXPECT_EQ(After(kWorkersCome), Verdict::kStale);
}

TEST_F(TakeoverTest, WithoutWorkersSilenceIsEnough) {
  contact_.workers.clear();
  EXPECT_EQ(After(kLease - kMoment), Verdict::kWait);
  EXPECT_EQ(After(kLease), Verdict::kTakeOver);
}

TEST_F(TakeoverTest, ACopyThatIsNotWholeNeverTakesOver) {
  contact_.whole = false;
  contact_.have_come = contact_.workers;
  for (const absl::Duration silence : {kLease, kWorkersCome, absl::Hours(1)}) {
    EXPECT_EQ(After(silence), Verdict::kWait);
  }
}

}  // namespace
}  // namespace longhaul::coordinator
