#include "base/http/retries.h"

#include <gtest/gtest.h>

#include <vector>

namespace longhaul::http {
namespace {

class RetriesTest : public ::testing::Test {
 protected:
  std::vector<absl::Duration> pauses_;
  Patience patience_{.attempts = 5,
                     .first_pause = absl::Seconds(1),
                     .longest_pause = absl::Seconds(3),
                     .sleep = [this](absl::Duration pause) { pauses_.push_back(pause); }};
  Call call_;
  const Status passing_ = absl::UnavailableError("busy");
};

TEST_F(RetriesTest, PausesDoubleUpToTheLongest) {
  Retries retries(patience_, call_);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(retries.Wait(passing_).ok());
  EXPECT_EQ(retries.Wait(passing_), passing_);
  ASSERT_EQ(pauses_.size(), 4);
  const int seconds[] = {1, 2, 3, 3};
  for (int i = 0; i < 4; ++i) {
    EXPECT_LE(pauses_[i], absl::Seconds(seconds[i]));
    EXPECT_GE(pauses_[i], absl::Seconds(seconds[i]) / 2);
  }
}

TEST_F(RetriesTest, ProgressGivesAllAttemptsAgain) {
  Retries retries(patience_, call_);
  for (int i = 0; i < 20; ++i) {
    retries.Progress();
    EXPECT_TRUE(retries.Wait(passing_).ok());
  }
}

TEST_F(RetriesTest, OtherErrorsAndLongPausesEndAtOnce) {
  Retries retries(patience_, call_);
  EXPECT_TRUE(absl::IsNotFound(retries.Wait(absl::NotFoundError("none"))));
  EXPECT_TRUE(retries.Wait(WithRetryAfter(passing_, absl::Seconds(20))).ok());
  EXPECT_EQ(pauses_.back(), absl::Seconds(20));
  EXPECT_TRUE(absl::IsUnavailable(retries.Wait(WithRetryAfter(passing_, absl::Hours(1)))));
  // A pause that would end behind the deadline.
  call_.deadline = Deadline::After(absl::Seconds(60));
  EXPECT_TRUE(absl::IsUnavailable(retries.Wait(WithRetryAfter(passing_, absl::Seconds(61)))));
  call_.given_up = [] { return true; };
  EXPECT_TRUE(absl::IsCancelled(retries.Wait(passing_)));
  EXPECT_EQ(pauses_.size(), 1);
}

}  // namespace
}  // namespace longhaul::http
