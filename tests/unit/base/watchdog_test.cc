// Loops that hang are found, and others are not blamed.
#include "base/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/disk_call.h"
#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

class WatchdogTest : public ::testing::Test {
 protected:
  // Looks so often, once a second; `each` runs before each look.
  template <class Each>
  std::optional<std::string> Looks(int seconds, const Each& each) {
    std::optional<std::string> hangs;
    for (int i = 0; i < seconds && !hangs; ++i) {
      now_ += absl::Seconds(1);
      each();
      hangs = look_.Look(now_);
    }
    return hangs;
  }
  std::optional<std::string> Looks(int seconds) {
    return Looks(seconds, [] {});
  }
  MonoTime now_ = Now();
  LoopLook look_;
};

TEST_F(WatchdogTest, ALoopThatDoesNotTurnHangs) {
  WatchedLoop loop("shell", absl::Seconds(10));
  EXPECT_EQ(Looks(30), std::nullopt);  // it has not begun
  EXPECT_EQ(Looks(30, [&] { loop.Turned(); }), std::nullopt);
  EXPECT_EQ(Looks(9), std::nullopt);
  EXPECT_THAT(Looks(1).value_or(""), HasSubstr("'shell' has not turned for 10s"));
  loop.Turned();
  loop.Rests();
  EXPECT_EQ(Looks(30), std::nullopt);
  loop.Turned();
  {
    const WaitsForOthers waits;
    EXPECT_EQ(Looks(30), std::nullopt);
  }
  EXPECT_EQ(Looks(9), std::nullopt);
  EXPECT_NE(Looks(2), std::nullopt);
}

// A loop of descriptors may sleep as long as it likes, and its callbacks may not take long.
TEST_F(WatchdogTest, AnEventLoopHangsInItsCallbacks) {
  const auto thread = *EventLoopThread::Start("links", absl::Seconds(10));
  // After a callback it takes the loop a moment until it sleeps.
  const auto sleeps = [&] {
    const Deadline deadline = Deadline::After(absl::Seconds(30));
    while (Looks(30).has_value()) {
      if (deadline.Expired()) return false;
      std::this_thread::yield();
    }
    return true;
  };
  thread->RunAndWait([] {});
  EXPECT_TRUE(sleeps());
  std::latch begun(1), go_on(1);
  thread->loop()->Post([&] {
    begun.count_down();
    go_on.wait();
  });
  begun.wait();
  EXPECT_EQ(Looks(9), std::nullopt);
  EXPECT_THAT(Looks(2).value_or(""), HasSubstr("'links' has not turned for 10s"));
  go_on.count_down();
  thread->RunAndWait([] {});
  EXPECT_TRUE(sleeps());
}

// Whoever did not look for an hour was stopped itself, with all loops.
TEST_F(WatchdogTest, TimeThatNobodySawDoesNotCount) {
  WatchedLoop loop("shell", absl::Seconds(10));
  loop.Turned();
  EXPECT_EQ(Looks(1), std::nullopt);
  now_ += absl::Hours(1);
  EXPECT_EQ(Looks(3), std::nullopt);
}

TEST_F(WatchdogTest, ADiskCallIsAnExcuseOnlyForWhomNobodySucceeds) {
  WatchedLoop loop("shell", absl::Seconds(10));
  loop.Turned();
  const DiskCall call("fsync", "/a/store.db");
  EXPECT_EQ(Looks(30), std::nullopt);
  loop.SpareDiskCalls(false);
  EXPECT_THAT(Looks(1).value_or(""), HasSubstr("; fsync of /a/store.db has taken"));
}

// A loop that has nothing to write does not notice that nothing can be written.
TEST_F(WatchdogTest, AShortDiskCallMayNotTakeLongWhereSomebodySucceeds) {
  WatchedLoop loop("shell", absl::Seconds(10));
  loop.SpareDiskCalls(false);
  const auto turn = [&] { loop.Turned(); };
  {
    const DiskCall call("writing", "/a/blob");
    EXPECT_EQ(Looks(30, turn), std::nullopt);
  }
  for (int i = 0; i < 10; ++i) {
    const DiskCall call("committing", "/a/store.db", /*is_short=*/true);
    EXPECT_EQ(Looks(5, turn), std::nullopt);
  }
  const DiskCall call("committing", "/a/store.db", /*is_short=*/true);
  loop.SpareDiskCalls(true);
  EXPECT_EQ(Looks(30, turn), std::nullopt);
  loop.SpareDiskCalls(false);
  EXPECT_THAT(Looks(1, turn).value_or(""), HasSubstr("committing of /a/store.db has taken"));
}

TEST(SlowDiskTest, ALongCallIsToldOfSeldom) {
  SlowDiskTeller teller;
  EXPECT_EQ(teller.Look(Now() + absl::Hours(1)), std::nullopt);
  const DiskCall call("fsync", "/a/store.db");
  const MonoTime since = LongestDiskCall()->since;
  std::string told;
  for (int seconds = 0; seconds < 200; ++seconds) {
    if (const auto line = teller.Look(since + absl::Seconds(seconds))) {
      told += std::to_string(seconds) + " ";
      EXPECT_THAT(*line, HasSubstr("fsync of /a/store.db has taken"));
    }
  }
  EXPECT_EQ(told, "1 3 10 30 100 ");
}

TEST(SlowDiskTest, TheLongestCallIsTheOldest) {
  EXPECT_FALSE(LongestDiskCall().has_value());
  const DiskCall one("fsync", "/one");
  {
    const DiskCall other("writing", "/other");
    EXPECT_EQ(LongestDiskCall()->what, "fsync of /one");
  }
  EXPECT_EQ(LongestDiskCall()->what, "fsync of /one");
}

// A thread that a disk holds would keep connections open, and the other end would hear nothing.
TEST(EndHungProcessTest, OthersHearOfTheEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd mine(ends[0]), theirs(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) EndHungProcess("it was told to");
  // This process has that end, too: only shutdown is heard.
  char byte = 0;
  EXPECT_EQ(::read(mine.get(), &byte, 1), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 70);
}

TEST(NotifySystemdTest, SystemdHears) {
  const testing::TempDir folder;
  const std::string path = folder.path() + "/notify";
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  NotifySystemd("READY=1");
  ::unsetenv("NOTIFY_SOCKET");
  NotifySystemd("nobody hears this");
  std::array<char, 100> text{};
  EXPECT_EQ(::recv(fd.get(), text.data(), text.size(), 0), 7);
  EXPECT_STREQ(text.data(), "READY=1");
}

}  // namespace
}  // namespace longhaul
