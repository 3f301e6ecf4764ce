// A worker without a session keeps its stage, until it is back, dead, or away for too long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class Detached : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& worker : kAbc) c.Join(worker);
    c.Tick(SubmitOf(SmallSpec("tiny", 3), "tiny-1"));
  }
  std::string StageState(int place) { return c.views().RunOf("tiny-1")->stages(place).state(); }

  const std::vector<std::string> kAbc = {"a", "b", "c"};
  Coordinator c;
};

TEST_F(Detached, TrainingGoesOnWithoutTheCoordinator) {
  c.ToRunning(kAbc, "tiny-1");
  c.Steps(kAbc, "tiny-1", 1);
  c.Leave("b", "connection reset");
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(StageState(1), "detached");
  EXPECT_EQ(c.LastEvent("worker"),
            "worker b (stage 1) has no connection to the coordinator (connection reset); it keeps "
            "its stage for 60 s");
  c.Step("a", "tiny-1", c.Report(2, 0, 3));
  c.Step("c", "tiny-1", c.Report(2, 2, 3));
  c.Pass(absl::Seconds(30), {"a", "c"});
  c.Forget();
  c.Join(HelloAt("b", "tiny-1", 1));
  EXPECT_EQ(c.LastEvent("worker"), "worker b (stage 1) is back after 30.0 s");
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kAbort), 0);
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kAssign), 0);
  EXPECT_EQ(StageState(1), "running");
  c.Step("b", "tiny-1", c.Report(2, 1, 3));  // what it kept
  EXPECT_EQ(c.views().RunOf("tiny-1")->step(), 2u);
}

TEST_F(Detached, TheStageIsLostWhenItsTimeIsOver) {
  c.ToRunning(kAbc, "tiny-1");
  c.Leave("b", "connection reset");
  c.Pass(absl::Seconds(59), {"a", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  c.Pass(absl::Seconds(1), {"a", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"),
              HasSubstr("worker b (stage 1) was lost: connection reset, and it did not come back "
                        "within 60 s"));
  EXPECT_EQ(c.views().RunOf("tiny-1")->workers_lost_size(), 1);
  EXPECT_EQ(StageState(1), "lost");
}

TEST_F(Detached, NobodyWaitsForAWorkerThatMayNotComeBack) {
  c.ToRunning(kAbc, "tiny-1");
  c.Tick(event::WorkerLeft{c.sessions["b"], "the certificate of b was revoked", true});
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("the certificate of b was revoked"));
  EXPECT_EQ(StageState(1), "lost");
}

TEST_F(Detached, AProcessWhoseConnectionsAllClosedIsDead) {
  c.ToRunning(kAbc, "tiny-1");
  c.Leave("b");
  c.Link("a", "tiny-1", 0, "lost");
  c.Pass(absl::Seconds(3), {"a", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "running") << "worker c does not miss it";
  c.Link("c", "tiny-1", 1, "lost");
  ASSERT_TRUE(c.last.wake_at.has_value());
  EXPECT_LE(*c.last.wake_at, c.now + absl::Seconds(2));
  c.Pass(absl::Milliseconds(1'900), {"a", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  c.Pass(absl::Milliseconds(100), {"a", "c"});
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker b (stage 1) was lost: closed, and its "
                                              "neighbours miss it too"));
}

TEST_F(Detached, WhoComesBackToItsNeighboursLives) {
  c.ToRunning(kAbc, "tiny-1");
  c.Leave("b");
  c.Link("a", "tiny-1", 0, "lost");
  c.Link("c", "tiny-1", 1, "lost");
  c.Pass(absl::Seconds(1), {"a", "c"});
  c.Link("c", "tiny-1", 1, "healed");
  c.Pass(absl::Seconds(30), {"a", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

// A machine that is out of reach closes nothing.
TEST_F(Detached, SilenceIsNotDeath) {
  c.ToRunning(kAbc, "tiny-1");
  c.Leave("b", "no sign of life for 10 s");
  c.Link("a", "tiny-1", 0, "suspect");
  c.Link("c", "tiny-1", 1, "suspect");
  c.Pass(absl::Seconds(30), {"a", "c"});
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(Detached, ANeighbourThatGaveItUpEndsItsTime) {
  c.ToRunning(kAbc, "tiny-1");
  c.Leave("b");
  c.Error("c", "tiny-1", "no sign of life of the peer for 10.0 s", 1);
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker b (stage 1) was lost: closed, and its "
                                              "neighbours miss it too"));
}

// Whoever is left tells of both.
TEST_F(Detached, TwoThatDieAtOnce) {
  c.ToRunning(kAbc, "tiny-1");
  c.Leave("a");
  c.Leave("b");
  c.Link("c", "tiny-1", 1, "lost");
  c.Pass(absl::Seconds(2), {"c"});
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker b (stage 1) was lost"));
}

// Nobody else can tell whether the process lives.
TEST_F(Detached, OneStageAloneHasAllItsTime) {
  c.Tick(event::StopAsked{RequestId(9), "tiny-1", true});
  c.Tick(SubmitOf(SmallSpec("alone", 1), "alone-1"));
  c.ToRunning({"a"}, "alone-1");
  c.Leave("a");
  c.Pass(absl::Seconds(59), {"b", "c"});
  EXPECT_EQ(c.StateOf("alone-1"), "running");
  c.Join(HelloAt("a", "alone-1", 0));
  EXPECT_EQ(c.StateOf("alone-1"), "running");
}

TEST_F(Detached, AStageThatIsReadyStaysReady) {
  c.ToPreparing(kAbc, "tiny-1");
  c.Ready("b", "tiny-1");
  c.Leave("b");
  c.Ready("a", "tiny-1");
  c.Ready("c", "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing") << "its links may be gone";
  c.Forget();
  c.Join(HelloAt("b", "tiny-1", 1));
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.Count("b", v1::WorkerCommand::kStart), 1);
}

TEST_F(Detached, AStopReachesItWhenItIsBack) {
  c.ToRunning(kAbc, "tiny-1");
  c.Steps(kAbc, "tiny-1", 1);
  c.Leave("a");
  c.Tick(event::StopAsked{RequestId(9), "tiny-1", false});
  EXPECT_EQ(c.StateOf("tiny-1"), "finishing");
  c.Forget();
  c.Join(HelloAt("a", "tiny-1", 0));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kStop), 1);
}

TEST_F(Detached, AnotherProcessOfItIsNotIt) {
  c.ToRunning(kAbc, "tiny-1");
  c.Leave("b");
  c.Join(HelloOf("b", "2"));
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("worker b (stage 1) was lost: it was started anew"));
}

}  // namespace
}  // namespace longhaul::coordinator
