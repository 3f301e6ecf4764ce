// Clusters come up, are changed, and go without a trace, however they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "deploy/cluster/network.h"
#include "deploy/cluster/process.h"
#include "tests/multiprocess/cluster/harness.h"

namespace longhaul::testing {
namespace {

using ::testing::HasSubstr;

class LifeCycle : public ClusterTest {};

TEST_F(LifeCycle, UpStatusDown) {
  const std::string said = Expect(0, Up({"--workers", "3", "--rate", "10mbit"}));
  EXPECT_THAT(said, HasSubstr("3 workers connected, links of 10 Mbit/s"));
  EXPECT_THAT(said, HasSubstr("Next: longhaul"));
  const auto status = Status();
  EXPECT_TRUE(status["coordinator"]["answers"]);
  ASSERT_EQ(status["workers"].size(), 3u);
  for (const auto& worker : status["workers"]) {
    EXPECT_TRUE(worker["alive"] && worker["connected"] && worker["link_up"]) << worker;
    EXPECT_EQ(worker["up_bits_per_second"], 10'000'000);
    EXPECT_TRUE(worker["uplink"].is_object() && worker["downlink"].is_object()) << worker;
  }
  struct stat token {};
  ASSERT_EQ(stat(status["token_file"].get<std::string>().c_str(), &token), 0);
  EXPECT_EQ(token.st_mode & 0777, 0600u);
  EXPECT_THAT(Expect(0, Command({"status"})), HasSubstr("worker3"));
  EXPECT_THAT(Expect(0, Command({"down"})), HasSubstr("nothing of it is left"));
  ExpectNothingLeft();
  EXPECT_THAT(Expect(0, Command({"down"})), HasSubstr("nothing to do"));
  EXPECT_THAT(Expect(1, Command({"status"})), HasSubstr("longhaul cluster up"));
}

TEST_F(LifeCycle, EveryWorkerGetsAGpuOfItsOwn) {
  Expect(0, Up({"--workers", "2", "--device", "cuda"}));
  const auto status = Status();
  EXPECT_EQ(status["workers"][0]["device"], "cuda:0");
  EXPECT_EQ(status["workers"][1]["device"], "cuda:1");
  const auto log = ReadFile(status["directory"].get<std::string>() + "/worker2.log", 1 << 16);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_THAT(*log, HasSubstr("computes on cuda:1"));
  EXPECT_THAT(Expect(2, Up({"--device", "gpu"})), HasSubstr("expected cpu, cuda, cuda:N or "));
}

TEST_F(LifeCycle, WorkersThatShareAGpuPlanWithTheirPartOfItsMemory) {
  Expect(0, Up({"--workers", "3", "--device", "cuda:0-1"}));
  const auto status = Status();
  const auto log_of = [&](int worker) {
    return ReadFile(fmt::format("{}/worker{}.log", status["directory"].get<std::string>(), worker),
                    1 << 16)
        .value_or("");
  };
  EXPECT_THAT(log_of(1), HasSubstr("computes on cuda:0, 0.5 of its memory"));
  EXPECT_THAT(log_of(2), HasSubstr("computes on cuda:1, 1 of its memory"));
  EXPECT_THAT(log_of(3), HasSubstr("computes on cuda:0, 0.5 of its memory"));
}

TEST_F(LifeCycle, TheSameNameTwiceIsRefusedAndHarmless) {
  Expect(0, Up({"--workers", "1"}));
  EXPECT_THAT(Expect(1, Up({"--workers", "1"})), HasSubstr("is up already"));
  EXPECT_TRUE(Status()["workers"][0]["connected"]);
}

class Another : public ClusterTest {
 public:
  void TestBody() override {}
  using ClusterTest::Expect;
  using ClusterTest::Status;
  using ClusterTest::Up;
};

TEST_F(LifeCycle, AnotherNameRunsBesideIt) {
  Expect(0, Up({"--workers", "1"}));
  {
    setenv("XDG_RUNTIME_DIR", runtime_folder().c_str(), 1);
    Another other;
    other.Expect(0, other.Up({"--workers", "1"}));
    EXPECT_TRUE(other.Status()["workers"][0]["connected"]);
  }
  setenv("XDG_RUNTIME_DIR", runtime_folder().c_str(), 1);
  EXPECT_TRUE(Status()["workers"][0]["connected"]);
}

TEST_F(LifeCycle, TwoComeUpAtTheSameTime) {
  Another other;
  Running second(other.Up({"--workers", "2"}));
  setenv("XDG_RUNTIME_DIR", runtime_folder().c_str(), 1);
  Expect(0, Up({"--workers", "2"}));
  EXPECT_EQ(second.Wait(), 0) << second.output();
}

TEST_F(LifeCycle, DaemonThatDiesShowsItsLogAndNothingIsLeft) {
  for (const char* daemon : {"worker2", "coordinator"}) {
    setenv("LONGHAUL_STAND_IN_FAIL", daemon, 1);
    const std::string said = Expect(1, Up({"--workers", "2"}));
    EXPECT_THAT(said, HasSubstr(std::string(daemon) + " has ended"));
    EXPECT_THAT(said, HasSubstr(std::string("the reason why ") + daemon + " fails"));
    ExpectNothingLeft();
  }
}

TEST_F(LifeCycle, WorkerThatNeverConnectsIsNamed) {
  setenv("LONGHAUL_STAND_IN_SILENT", "worker2", 1);
  const std::string expected = "out of time, 2 of 3 connected; waiting for worker2";
  std::string said;
  for (const char* timeout : {"2s", "10s", "40s"}) {  // On a busy machine 2 s may end before.
    said = Expect(1, Up({"--workers", "3", "--timeout", timeout}));
    ExpectNothingLeft();
    if (said.find(expected) != std::string::npos) break;
  }
  EXPECT_THAT(said, HasSubstr(expected));
}

TEST_F(LifeCycle, InterruptedUpCleansUp) {
  setenv("LONGHAUL_STAND_IN_SILENT", "worker1", 1);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Running up(Up({"--workers", "2"}));
    ASSERT_TRUE(up.WaitForOutput("waiting for worker1")) << up.output();
    up.Signal(signal);
    EXPECT_EQ(up.Wait(), 130) << up.output();
    ExpectNothingLeft();
  }
}

TEST_F(LifeCycle, DownClearsWhatAKilledUpLeaves) {
  setenv("LONGHAUL_STAND_IN_SILENT", "worker1", 1);
  for (const char* moment :
       {"making the network", "link 1 of 2", "link 2 of 2", "starting the coordinator",
        "starting worker2", "waiting for worker1"}) {
    Running up(Up({"--workers", "2", "--rate", "10mbit"}));
    ASSERT_TRUE(up.WaitForOutput(moment)) << moment << "\n" << up.output();
    up.Signal(SIGKILL);
    EXPECT_EQ(up.Wait(), 128 + SIGKILL);
    Expect(0, Command({"down"}));
    ExpectNothingLeft();
  }
}

TEST_F(LifeCycle, RemainsAreNotOverwritten) {
  setenv("LONGHAUL_STAND_IN_SILENT", "worker1", 1);
  Running up(Up({"--workers", "1"}));
  ASSERT_TRUE(up.WaitForOutput("waiting for worker1")) << up.output();
  up.Signal(SIGKILL);
  up.Wait();
  EXPECT_THAT(Expect(1, Up({"--workers", "1"})), HasSubstr("longhaul cluster down"));
}

TEST_F(LifeCycle, DownWorksWithoutTheStateFile) {
  Expect(0, Up({"--workers", "2"}));
  std::filesystem::remove_all(runtime_folder() + "/longhaul");
  Expect(0, Command({"down"}));
  ExpectNothingLeft();
}

TEST_F(LifeCycle, DownWorksAfterEveryDaemonWasKilled) {
  Expect(0, Up({"--workers", "2"}));
  for (const ProcessIdentity& process : FindDaemons(name())) kill(process.pid, SIGKILL);
  Expect(0, Command({"down"}));
  ExpectNothingLeft();
}

TEST_F(LifeCycle, DownWaitsForAnUpThatIsBusy) {
  setenv("LONGHAUL_STAND_IN_SILENT", "worker1", 1);
  Running up(Up({"--workers", "1", "--timeout", "6s"}));
  ASSERT_TRUE(up.WaitForOutput("waiting for worker1")) << up.output();
  Expect(0, Command({"down"}));
  EXPECT_EQ(up.Wait(), 1);
  ExpectNothingLeft();
}

TEST_F(LifeCycle, NamedDirectoryOutlivesTheCluster) {
  const TempDir folder;
  const std::string directory = folder.path() + "/kept";
  Expect(0, Up({"--workers", "1", "--dir", directory}));
  Expect(0, Command({"down"}));
  ExpectNothingLeft();
  EXPECT_EQ(access((directory + "/worker1").c_str(), F_OK), 0);
  EXPECT_EQ(access((directory + "/coordinator.log").c_str(), F_OK), 0);
}

TEST_F(LifeCycle, KilledDaemonsAreStartedAgain) {
  Expect(0, Up({"--workers", "2"}));
  const int before = Status()["workers"][1]["pid"];
  Expect(0, Command({"kill", "worker2"}));
  EXPECT_FALSE(Status()["workers"][1]["alive"]);
  EXPECT_THAT(Expect(1, Command({"kill", "worker2"})), HasSubstr("cluster start worker2"));
  Expect(0, Command({"start", "worker2"}));
  const auto worker = Status()["workers"][1];
  EXPECT_TRUE(worker["alive"] && worker["connected"]) << worker;
  EXPECT_NE(worker["pid"], before);
  EXPECT_THAT(Expect(1, Command({"start", "worker2"})), HasSubstr("running already"));

  Expect(0, Command({"kill", "coordinator"}));
  EXPECT_FALSE(Status()["coordinator"]["alive"]);
  Expect(0, Command({"start", "coordinator"}));
  EXPECT_TRUE(Status()["coordinator"]["answers"]);
  EXPECT_THAT(Expect(1, Command({"kill", "worker3"})), HasSubstr("worker1, worker2"));
}

#ifdef LONGHAUL_COORDINATOR_PROGRAM
TEST_F(LifeCycle, TheRealCoordinatorKeepsItsWorkersOverARestart) {
  Expect(0, Command({"up", "--workers", "2", "--coordinator-program", LONGHAUL_COORDINATOR_PROGRAM,
                     "--worker-program", LONGHAUL_STAND_IN_DAEMON, "--insecure"}));
  EXPECT_TRUE(Status()["workers"][1]["connected"]);
  Expect(0, Command({"kill", "coordinator"}));
  Expect(0, Command({"start", "coordinator"}));
  Expect(0, Command({"kill", "worker2"}));
  Expect(0, Command({"start", "worker2"}));
  EXPECT_TRUE(Status()["workers"][1]["connected"]);
  Expect(0, Command({"down"}));
  ExpectNothingLeft();
}
#endif

TEST_F(LifeCycle, WrongUsage) {
  EXPECT_THAT(Expect(2, Up({"--delay", "11s"})), HasSubstr("expected 0 to 10 s"));
  EXPECT_THAT(Expect(2, Up({"--delay", "fast"})), HasSubstr("a duration such as 20ms"));
  EXPECT_THAT(Expect(2, Up({"--loss", "100%"})), HasSubstr("--down"));
  EXPECT_THAT(Expect(2, Up({"--loss", "0.1"})), HasSubstr("a percentage such as 0.1%"));
  EXPECT_THAT(Expect(2, Up({"--rate", "10"})), HasSubstr("unlimited"));
  EXPECT_THAT(Expect(2, Up({"--workers", "0"})), HasSubstr("workers"));
  EXPECT_THAT(Expect(2, Command({"link", "worker1"})), HasSubstr("--loss, --down and --up"));
  EXPECT_THAT(Expect(2, Command({"link", "worker1", "--up", "--down"})), HasSubstr("--down"));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace longhaul::testing
