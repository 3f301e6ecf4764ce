#include "deploy/cluster/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

std::string Cluster() {
  return "unit" + std::to_string(getpid());
}

TEST(ClusterProcess, ToolGivesItsOutputOrItsReason) {
  EXPECT_EQ(*RunTool({"printf", "%s", "a b"}), "a b");
  const Status failed = RunTool({"ls", "/no/such folder"}).status();
  EXPECT_THAT(std::string(Message(failed)), HasSubstr("'ls '/no/such folder'' failed"));
  EXPECT_THAT(std::string(Message(failed)), HasSubstr("No such file"));
  const Status absent = RunTool({"no-such-tool", "x"}).status();
  EXPECT_TRUE(absl::IsNotFound(absent)) << absent;
  EXPECT_THAT(std::string(Message(absent)), HasSubstr("no-such-tool x"));
}

TEST(ClusterProcess, ToolThatFillsBothPipesDoesNotHang) {
  const auto out =
      RunTool({"python3", "-c", "import sys; sys.stderr.write('e' * 300000); print('o' * 300000)"});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->size(), 300001u);
}

TEST(ClusterProcess, DaemonIsFoundByItsMarkAndStops) {
  const TempDir folder;
  const std::string log = folder.path() + "/log";
  const auto process = StartDaemon({"/bin/sleep", "600"}, Cluster(), log);
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_TRUE(IsAlive(*process));
  const auto found = FindDaemons(Cluster());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].pid, process->pid);
  EXPECT_EQ(found[0].start_ticks, process->start_ticks);
  EXPECT_TRUE(FindDaemons(Cluster() + "x").empty());
  EXPECT_TRUE(StopProcesses({*process}, absl::Seconds(5)).ok());
  EXPECT_FALSE(IsAlive(*process));
  EXPECT_TRUE(FindDaemons(Cluster()).empty());
}

TEST(ClusterProcess, DaemonThatIgnoresSigtermIsKilled) {
  const TempDir folder;
  const std::string log = folder.path() + "/log";
  const auto process =
      StartDaemon({FindTool("python3"), "-uc",
                   "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready')\n"
                   "while True: signal.pause()"},
                  Cluster(), log);
  ASSERT_TRUE(process.ok()) << process.status();
  const Deadline deadline = Deadline::After(absl::Seconds(20));
  while (LogTail(log, 1) != "ready\n" && !deadline.Expired()) usleep(5000);
  const MonoTime begin = Now();
  EXPECT_TRUE(StopProcesses({*process}, absl::Milliseconds(100)).ok());
  EXPECT_GE(Now() - begin, absl::Milliseconds(100));
  EXPECT_FALSE(IsAlive(*process));
}

TEST(ClusterProcess, AnotherProcessWithTheSameIdIsNotTheOneWeKnow) {
  const TempDir folder;
  auto process = StartDaemon({"/bin/sleep", "600"}, Cluster(), folder.path() + "/log");
  ASSERT_TRUE(process.ok()) << process.status();
  ProcessIdentity earlier = *process;
  --earlier.start_ticks;
  EXPECT_FALSE(IsAlive(earlier));
  EXPECT_TRUE(StopProcesses({earlier}, absl::ZeroDuration()).ok());
  EXPECT_TRUE(IsAlive(*process));  // It was left alone.
  EXPECT_TRUE(KillProcess(*process).ok());
  EXPECT_FALSE(IsAlive(*process));
}

TEST(ClusterProcess, DaemonThatCannotStartSaysWhy) {
  const TempDir folder;
  const auto process = StartDaemon({"/no/such/daemon"}, Cluster(), folder.path() + "/log");
  EXPECT_TRUE(absl::IsNotFound(process.status())) << process.status();
  EXPECT_THAT(std::string(Message(process.status())), HasSubstr("/no/such/daemon"));
}

TEST(ClusterProcess, LogTailIsTheLastLines) {
  const TempDir folder;
  const std::string path = folder.path() + "/log";
  ASSERT_TRUE(WriteFileAtomic(path, "1\n2\n3\n").ok());
  EXPECT_EQ(LogTail(path, 2), "2\n3\n");
  EXPECT_EQ(LogTail(path, 9), "1\n2\n3\n");
  ASSERT_TRUE(WriteFileAtomic(path, "1\n2").ok());
  EXPECT_EQ(LogTail(path, 1), "2");
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  EXPECT_EQ(LogTail(path, 1), "");
  EXPECT_EQ(LogTail(folder.path() + "/absent", 1), "");
}

}  // namespace
}  // namespace longhaul
