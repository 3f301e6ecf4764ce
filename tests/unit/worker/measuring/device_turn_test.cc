#include "worker/measuring/device_turn.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul::worker {
namespace {

class DeviceTurn : public ::testing::Test {
 protected:
  DeviceTurn() { EXPECT_TRUE(WriteFileAtomic(device_, "").ok()); }

  const testing::TempDir folder_;
  const std::string device_ = folder_.path() + "/nvidia0";
};

TEST_F(DeviceTurn, IsOfOneAtATime) {
  UniqueFd mine = TakeTurn(device_, absl::ZeroDuration());
  ASSERT_TRUE(mine);
  EXPECT_FALSE(TakeTurn(device_, absl::ZeroDuration()));
  mine.Reset();
  EXPECT_TRUE(TakeTurn(device_, absl::ZeroDuration()));
}

TEST_F(DeviceTurn, ComesWhenTheOtherIsDone) {
  UniqueFd mine = TakeTurn(device_, absl::ZeroDuration());
  ASSERT_TRUE(mine);
  EXPECT_FALSE(TakeTurn(device_, absl::Milliseconds(20)));
  std::thread other([&] { EXPECT_TRUE(TakeTurn(device_, absl::Seconds(30))); });
  mine.Reset();
  other.join();
}

TEST_F(DeviceTurn, IsNotWaitedForWhereThereIsNoSuchFile) {
  EXPECT_FALSE(TakeTurn(folder_.path() + "/nvidia1", absl::InfiniteDuration()));
}

}  // namespace
}  // namespace longhaul::worker
