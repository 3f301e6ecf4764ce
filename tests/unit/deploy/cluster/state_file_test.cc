#include "deploy/cluster/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "deploy/cluster/process.h"
#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() { setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1); }
  ~StateFileTest() override { unsetenv("XDG_RUNTIME_DIR"); }

  static ClusterState Example(const std::string& name) {
    ClusterState state;
    state.name = name;
    state.coordinator_address = "10.78.4.1:7070";
    state.token_file = "/x/token";
    state.directory = "/var/tmp/x";
    state.owns_directory = false;
    state.ready = true;
    state.shaper = "htb";
    state.coordinator_program = "/bin/c";
    state.worker_program = "/bin/w";
    state.log_level = "debug";
    state.subnet = 4;
    state.coordinator = {12, 3456};
    state.relay_program = "/bin/l";
    state.delay_by = DelayBy::kNetem;
    state.relay = {14, 99};
    state.workers.push_back(
        {"worker1",
         "lh-x-w1",
         "10.77.4.11",
         "10.78.4.11",
         {10'000'000, 20'000'000, {absl::Milliseconds(25), absl::Microseconds(20), 0.001}},
         false,
         {13, 18'446'744'073'709'551'615u},
         {1, 2, 3, 4, 5},
         "cuda:3"});
    state.paths.push_back({"worker1", "worker2", 5'000'000, std::nullopt});
    state.paths.push_back({"worker2", "worker1", 0, LinkQuality{absl::Seconds(1), {}, 0.5}});
    return state;
  }

  TempDir folder_;
};

TEST_F(StateFileTest, WhatIsWrittenIsRead) {
  const ClusterState state = Example("x");
  ASSERT_TRUE(WriteClusterState(state).ok());
  const auto read = ReadClusterState("x");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ClusterStateToJson(*read), ClusterStateToJson(state));
  EXPECT_EQ(read->workers[0].process.start_ticks, 18'446'744'073'709'551'615u);
  EXPECT_FALSE(read->workers[0].link_up);
  EXPECT_EQ(read->workers[0].link, state.workers[0].link);
  EXPECT_EQ(read->workers[0].uplink_before.acknowledgement_bytes, 5u);
  EXPECT_EQ(read->paths, state.paths);
  EXPECT_EQ(read->delay_by, DelayBy::kNetem);
  EXPECT_EQ(read->workers[0].device, "cuda:3");
}

TEST_F(StateFileTest, WorkersOfAnOlderVersionComputeOnTheCpu) {
  nlohmann::json document = nlohmann::json::parse(ClusterStateToJson(Example("x")));
  document["workers"][0].erase("device");
  const auto read = ClusterStateFromJson(document.dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->workers[0].device, "cpu");
}

TEST_F(StateFileTest, OthersMayNotLook) {
  ASSERT_TRUE(WriteClusterState(Example("x")).ok());
  struct stat info {};
  ASSERT_EQ(stat(ClusterStateFolder("x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat((ClusterStateFolder("x") + "/cluster.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(StateFileTest, TheOnlyClusterNeedsNoName) {
  EXPECT_TRUE(absl::IsNotFound(ReadClusterState().status()));
  EXPECT_THAT(std::string(Message(ReadClusterState().status())), HasSubstr("longhaul cluster up"));
  ASSERT_TRUE(WriteClusterState(Example("b")).ok());
  EXPECT_EQ(ReadClusterState()->name, "b");
  ASSERT_TRUE(WriteClusterState(Example("a")).ok());
  EXPECT_THAT(ListClusters(), ElementsAre("a", "b"));
  EXPECT_THAT(std::string(Message(ReadClusterState().status())), HasSubstr("(a, b)"));
  ASSERT_TRUE(WriteClusterState(Example("local")).ok());
  EXPECT_EQ(ReadClusterState()->name, "local");
}

TEST_F(StateFileTest, TheFileOfAKilledClusterIsNotTakenByItsAddress) {
  const auto killed = StartDaemon({"/bin/sleep", "600"}, "a", folder_.path() + "/log");
  const auto alive = StartDaemon({"/bin/sleep", "600"}, "b", folder_.path() + "/log");
  ASSERT_TRUE(killed.ok() && alive.ok());
  ClusterState first = Example("a"), second = Example("b");
  first.coordinator = *killed;
  second.coordinator = *alive;
  ASSERT_TRUE(WriteClusterState(first).ok());
  ASSERT_TRUE(WriteClusterState(second).ok());
  EXPECT_EQ(ClusterAt(first.coordinator_address)->name, "a");
  ASSERT_TRUE(KillProcess(*killed).ok());
  EXPECT_EQ(ClusterAt(first.coordinator_address)->name, "b");
  // Its coordinator is away for a while, and comes back: its workers live.
  second.coordinator = *killed;
  second.workers[0].process = *alive;
  ASSERT_TRUE(WriteClusterState(second).ok());
  EXPECT_EQ(ClusterAt(first.coordinator_address)->name, "b");
  ASSERT_TRUE(KillProcess(*alive).ok());
  EXPECT_FALSE(ClusterAt(first.coordinator_address));
}

TEST_F(StateFileTest, BrokenFilesAreErrorsNotCrashes) {
  const std::string text = ClusterStateToJson(Example("x"));
  for (size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_TRUE(absl::IsInvalidArgument(ClusterStateFromJson(text.substr(0, length)).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ClusterStateFromJson("[]").status()));
  const auto other = ClusterStateFromJson(R"({"version": 1})");
  EXPECT_THAT(std::string(Message(other.status())), HasSubstr("another version"));
}

TEST_F(StateFileTest, AFolderThatIsALinkIsRefused) {
  const std::string link = folder_.path() + "/link";
  ASSERT_EQ(symlink("/tmp", link.c_str()), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(MakePrivateFolder(link)));
}

}  // namespace
}  // namespace longhaul
