#include "base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace longhaul {
namespace {

bool IsOpen(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

UniqueFd Open() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

TEST(UniqueFd, ClosesWhatItOwnsAtItsEnd) {
  int number = -1;
  {
    const UniqueFd fd = Open();
    ASSERT_TRUE(fd);
    number = fd.get();
    EXPECT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(UniqueFd, OwnsNothingOfAFailedCall) {
  EXPECT_FALSE(UniqueFd());
  EXPECT_FALSE(UniqueFd(::open("/dev/null/no", O_RDONLY | O_CLOEXEC)));
}

TEST(UniqueFd, MovesItsDescriptor) {
  UniqueFd from = Open();
  const int number = from.get();
  UniqueFd to = std::move(from);
  EXPECT_EQ(to.get(), number);
  EXPECT_FALSE(from);  // NOLINT(bugprone-use-after-move): what a move leaves
  UniqueFd other = Open();
  const int replaced = other.get();
  other = std::move(to);
  EXPECT_EQ(other.get(), number);
  EXPECT_FALSE(IsOpen(replaced));
  EXPECT_TRUE(IsOpen(number));
}

TEST(UniqueFd, ResetClosesAndTakes) {
  UniqueFd fd = Open();
  const int first = fd.get(), second = ::dup(first);
  fd.Reset(second);
  EXPECT_FALSE(IsOpen(first));
  EXPECT_EQ(fd.get(), second);
  fd.Reset();
  EXPECT_FALSE(fd);
  EXPECT_FALSE(IsOpen(second));
}

}  // namespace
}  // namespace longhaul
