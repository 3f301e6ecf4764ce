#include "coordinator/standby/takeover.h"

#include <gtest/gtest.h>

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kMoment = absl::Milliseconds(1);

class TakeoverTest : public ::testing::Test {
 protected:
  Verdict After(absl::Duration silence) const { return Judge(contact_, contact_.heard + silence); }
  // Each of them `silence` after the coordinator spoke last.
  void Come(const std::set<std::string>& workers, absl::Duration silence = kLease) {
    for (const std::string& id : workers) contact_.have_come[id] = contact_.heard + silence;
  }

  Contact contact_{.whole = true, .heard = Now(), .workers = {"a", "b", "c", "d"}, .have_come = {}};
};

TEST_F(TakeoverTest, NothingHappensWithinTheLease) {
  Come(contact_.workers);
  EXPECT_EQ(After(absl::ZeroDuration()), Verdict::kWait);
  EXPECT_EQ(After(kLease - kMoment), Verdict::kWait);
  EXPECT_EQ(After(kLease), Verdict::kTakeOver);
}

TEST_F(TakeoverTest, MostWorkersHaveToCome) {
  Come({"a", "b", "x", "y", "z"});  // half, and strangers
  EXPECT_EQ(After(kLease), Verdict::kWait);
  Come({"c"});
  EXPECT_EQ(After(kLease), Verdict::kTakeOver);
}

TEST_F(TakeoverTest, WhoHasComeAndGoneIsNoWitness) {
  Come({"a", "b", "c"});
  EXPECT_EQ(After(kLease + kWitnessLasts - kMoment), Verdict::kTakeOver);
  EXPECT_EQ(After(kLease + kWitnessLasts), Verdict::kWait);
  Come({"a", "b"}, kLease + kWitnessLasts);
  EXPECT_EQ(After(kLease + kWitnessLasts), Verdict::kWait);
  Come({"c"}, kLease + kWitnessLasts);
  EXPECT_EQ(After(kLease + kWitnessLasts), Verdict::kTakeOver);
}

TEST_F(TakeoverTest, WorkersThatStayAwayMeanThatTheCoordinatorLives) {
  Come({"a"});
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
  for (const absl::Duration silence : {kLease, kWorkersCome, absl::Hours(1)}) {
    Come(contact_.workers, silence);
    EXPECT_EQ(After(silence), Verdict::kWait);
  }
}

}  // namespace
}  // namespace longhaul::coordinator
