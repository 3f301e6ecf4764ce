#include "coordinator/store/state_dir_lock.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

TEST(StateDirLockTest, OnlyOneHolds) {
  const TempDir folder;
  const std::string state_dir = folder.path() + "/made/on/demand";
  {
    const auto first = StateDirLock::Acquire(state_dir);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = StateDirLock::Acquire(state_dir);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(Message(second.status())),
                HasSubstr(fmt::format("pid {}", ::getpid())));
  }
  EXPECT_TRUE(StateDirLock::Acquire(state_dir).ok());
}

}  // namespace
}  // namespace longhaul::coordinator
