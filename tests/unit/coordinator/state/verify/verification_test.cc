// What follows when stages contradict each other: who is named, what is trained again, who goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Body = v1::WorkerCommand;

const std::vector<std::string> kAbc = {"a", "b", "c"};

class VerificationTest : public ::testing::Test {
 protected:
  void Begin(const std::vector<std::string>& spares = {"d", "e"}) {
    spec.verify.digests = DigestKind::kXxh3;
    spec.recovery.attempts = 5;
    spec.train.steps = 200;
    for (const std::string& worker : kAbc) c.Join(worker);
    for (const std::string& worker : spares) c.Join(worker);
    c.Tick(SubmitOf(spec, "tiny-1"));
    c.ToRunning(kAbc, "tiny-1");
    ASSERT_EQ(c.StateOf("tiny-1"), "running");
    c.Forget();
  }
  using Change = std::function<void(uint32_t stage, v1::DigestBody& body)>;
  // All stages report the step.
  void Step(
      uint64_t step, const Change& change = [](uint32_t, v1::DigestBody&) {}) {
    for (uint32_t stage = 0; stage < 3; ++stage) Report(step, stage, change);
  }
  void Report(
      uint64_t step, uint32_t stage, const Change& change = [](uint32_t, v1::DigestBody&) {}) {
    v1::WorkerMessage message = c.About("tiny-1");
    v1::DigestBody body;
    body.set_run_id("tiny-1");
    body.set_epoch(message.epoch());
    body.set_stamp(message.stamp());
    body.mutable_cell()->set_stage(stage);
    body.set_step(step);
    for (const Edge& edge : chain::MakeEdges(1, 3, false)) {
      if (edge.from.stage != stage && edge.to.stage != stage) continue;
      for (const bool forward : {true, false}) {
        v1::EdgeDigests& one = *body.add_edges();
        one.set_edge(edge.id.value());
        one.set_forward(forward);
        one.set_sent(forward == (edge.from.stage == stage));
        one.set_messages(2);
        for (uint64_t message_of : {0, 1}) one.add_digests(step * 10 + message_of);
      }
    }
    body.set_state_after(step);
    if (step > start_step + 1) body.set_state_before(step - 1);
    change(stage, body);
    *message.mutable_step() = c.Report(step, stage, 3);
    if (body.step() > 0)
      message.mutable_step()->mutable_digests()->set_body(body.SerializeAsString());
    c.Tick(c.Said(workers[stage], message));
  }
  // What `stage` says that it sent over each edge is not what it sent.
  static Change LiesAboutSent(uint32_t liar) {
    return [liar](uint32_t stage, v1::DigestBody& body) {
      if (stage != liar) return;
      for (v1::EdgeDigests& one : *body.mutable_edges()) {
        if (one.sent()) one.set_digests(0, 77);
      }
    };
  }
  // The next epoch trains, of these workers. The second one in a row without a new step is planned
  // anew.
  void Recover(const std::vector<std::string>& crew) {
    for (int i = 0; i < 10 && c.StateOf("tiny-1") == "recovering"; ++i) {
      c.Advance(absl::Seconds(1));
      c.Tick();
      for (const std::string& worker : crew) c.Checked(worker);
    }
    if (c.StateOf("tiny-1") == "queued") {
      c.Advance(absl::Seconds(10));
      c.Tick();
    }
    if (c.StateOf("tiny-1") == "planning") c.ToPreparing(crew, "tiny-1");
    ASSERT_EQ(c.StateOf("tiny-1"), "preparing") << c.ReasonOf("tiny-1");
    workers = crew;
    for (const std::string& worker : workers) c.Ready(worker, "tiny-1", start_step);
    ASSERT_EQ(c.StateOf("tiny-1"), "running");
  }
  void Find(const std::string& worker, v1::Finding::Kind kind, uint64_t step, uint32_t edge = 0,
            bool forward = true) {
    v1::WorkerMessage message = c.About("tiny-1");
    v1::Finding& finding = *message.mutable_finding();
    finding.set_kind(kind);
    finding.set_step(step);
    finding.set_edge(edge);
    finding.set_forward(forward);
    finding.set_what("its norm is 81 times the usual");
    finding.set_waits(true);
    c.Tick(c.Said(worker, message));
  }

  RunSpec spec = SmallSpec("tiny", 3);
  Coordinator c;
  std::vector<std::string> workers = kAbc;
  uint64_t start_step = 0;
};

TEST_F(VerificationTest, AnHonestRunGoesOn) {
  Begin();
  for (uint64_t step = 1; step <= 100; ++step) Step(step);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.LastEvent("verify"), "");
}

TEST_F(VerificationTest, AStageThatBothNeighboursContradictIsEvicted) {
  Begin();
  Step(1);
  Step(2, LiesAboutSent(1));
  EXPECT_NE(c.StateOf("tiny-1"), "running");
  EXPECT_THAT(c.LastEvent("verify"),
              AllOf(HasSubstr("worker b is evicted"), HasSubstr("so do 1 other edges")));
  EXPECT_EQ(c.Count("b", Body::kKeepEvidence), 2);
  EXPECT_EQ(c.Count("a", Body::kKeepEvidence), 1);
  Recover({"a", "d", "c"});
  for (uint64_t step = 1; step <= 5; ++step) Step(step);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(VerificationTest, WhereNothingTellsWhichEndLiesTheStepIsRepeatedOnce) {
  Begin();
  Step(1, LiesAboutSent(0));
  EXPECT_NE(c.StateOf("tiny-1"), "running");
  EXPECT_THAT(c.LastEvent("verify"),
              AllOf(HasSubstr("edge 0, from worker a (stage 0) to worker b (stage 1),"),
                    HasSubstr("activation 0 of 1")));
  Recover({"a", "b", "c"});
  Step(1, LiesAboutSent(0));
  EXPECT_THAT(c.LastEvent("verify"), HasSubstr("one of the two errs, and nothing tells which"));
  Recover({"c", "d", "e"});
  for (uint64_t step = 1; step <= 5; ++step) Step(step);
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(VerificationTest, TheRunGoesBackBehindTheWrongStepAndNoFarther) {
  Begin();
  for (uint64_t step = 1; step <= 5; ++step) {
    Step(step);
    if (step % 2 == 0) c.Shards(kAbc, "tiny-1", step, step == 2 ? 'a' : 'b');
  }
  Find("b", v1::Finding::STATE_CHANGED, 4);
  ASSERT_NE(c.Last("a", Body::kDropCheckpoint), nullptr);
  EXPECT_EQ(c.Last("a", Body::kDropCheckpoint)->drop_checkpoint().step(), 4u);
  start_step = 2;
  c.Advance(absl::Seconds(6));
  c.Tick();
  for (const std::string worker : {"a", "b", "c", "d"}) c.Checked(worker);
  Recover({"a", "d", "c"});
  EXPECT_EQ(c.Last("a", Body::kAssign)->assign().assignment().start_step(), 2u);
}

TEST_F(VerificationTest, OtherNumbersOfARepeatedStepAreNoFault) {
  spec.verify.differs = Contradicted::kRepeat;
  Begin();
  Step(1);
  Step(2, LiesAboutSent(1));
  Recover({"a", "b", "c"});
  Step(1);
  Step(2);
  EXPECT_EQ(c.StateOf("tiny-1"), "running") << c.ReasonOf("tiny-1");
}

TEST_F(VerificationTest, WarningsAreFewAndTheRunGoesOn) {
  spec.verify.differs = Contradicted::kWarn;
  Begin();
  for (uint64_t step = 1; step <= 150; ++step) Step(step, LiesAboutSent(0));
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  const auto told = std::ranges::count_if(
      c.events, [](const v1::Event& event) { return event.kind() == "verify"; });
  EXPECT_EQ(told, 2) << "one in a hundred steps";
}

TEST_F(VerificationTest, WhoWithholdsDigestsIsEvicted) {
  Begin();
  Step(1);
  Step(2, [](uint32_t stage, v1::DigestBody& body) {
    if (stage == 2) body.set_step(0);  // no digests at all
  });
  EXPECT_THAT(c.LastEvent("verify"),
              AllOf(HasSubstr("worker c is evicted"),
                    HasSubstr("worker c (stage 2) withholds digests of step 2")));
  Recover({"a", "b", "d"});
}

TEST_F(VerificationTest, WhoSpoilsDigestsIsEvicted) {
  Begin();
  Step(1);
  Step(2, [](uint32_t stage, v1::DigestBody& body) {
    if (stage == 2) body.clear_edges();
  });
  EXPECT_THAT(c.LastEvent("verify"),
              AllOf(HasSubstr("worker c is evicted"),
                    HasSubstr("worker c (stage 2) has sent false digests of step 2")));
  Recover({"a", "b", "d"});
}

TEST_F(VerificationTest, WhoDoesNotSignIsEvicted) {
  Begin();
  Step(1);
  v1::WorkerMessage message = c.About("tiny-1");
  *message.mutable_step() = c.Report(2, 1, 3);
  message.mutable_step()->mutable_digests()->set_body("anything");
  event::WorkerSaid said = c.Said("b", message);
  said.signature = Signature::kBad;
  c.Tick(said);
  EXPECT_THAT(c.LastEvent("verify"),
              AllOf(HasSubstr("worker b is evicted"), HasSubstr("has not signed its digests")));
}

TEST_F(VerificationTest, WhoReportsNothingIsEvicted) {
  Begin();
  // For a minute the others are far ahead.
  for (uint64_t step = 1; step <= 70; ++step) {
    for (const uint32_t stage : {0, 1}) Report(step, stage);
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  c.Pass(absl::Seconds(61), {"a", "b", "c", "d", "e"});
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  Report(71, 0);
  EXPECT_THAT(c.LastEvent("verify"),
              AllOf(HasSubstr("worker c is evicted"), HasSubstr("it has reported nothing since")));
}

TEST_F(VerificationTest, AStateThatChangedEvictsItsWorker) {
  Begin();
  Step(1);
  Find("b", v1::Finding::STATE_CHANGED, 2);
  EXPECT_THAT(c.LastEvent("verify"), AllOf(HasSubstr("worker b is evicted"),
                                           HasSubstr("between the updates of steps 1 and 2")));
  Recover({"a", "d", "c"});
}

TEST_F(VerificationTest, AnImplausibleTensorThatComesAgainPasses) {
  spec.verify.outliers = Implausible::kRepeat;
  Begin();
  Step(1);
  Find("b", v1::Finding::OUTLIER, 2, /*edge=*/0, /*forward=*/true);
  EXPECT_NE(c.StateOf("tiny-1"), "running");
  EXPECT_THAT(c.LastEvent("verify"),
              HasSubstr("worker b (stage 1) got an implausible activation of microbatch 0 in step "
                        "2 from worker a (stage 0): its norm is 81 times the usual"));
  Recover({"a", "b", "c"});
  EXPECT_EQ(c.Last("b", Body::kAssign)->assign().accepted_outliers_size(), 0);
  Find("b", v1::Finding::OUTLIER, 2, 0, true);
  Recover({"a", "b", "c"});
  const auto& accepted = c.Last("b", Body::kAssign)->assign().accepted_outliers();
  ASSERT_EQ(accepted.size(), 1);
  EXPECT_EQ(accepted[0].step(), 2u);
  EXPECT_TRUE(accepted[0].forward());
}

TEST_F(VerificationTest, AnImplausibleTensorThatComesAgainEvictsItsSender) {
  spec.verify.outliers = Implausible::kEvict;
  Begin();
  Step(1);
  Find("b", v1::Finding::OUTLIER, 2, /*edge=*/1, /*forward=*/false);
  Recover({"a", "b", "c"});
  Find("b", v1::Finding::OUTLIER, 2, 1, false);
  EXPECT_THAT(c.LastEvent("verify"), HasSubstr("worker c is evicted"));
  Recover({"a", "b", "d"});
}

TEST_F(VerificationTest, FindingsAboutEdgesOfOthersCountForNothing) {
  spec.verify.outliers = Implausible::kEvict;
  Begin();
  Find("c", v1::Finding::OUTLIER, 1, /*edge=*/0, true);   // of a and b
  Find("a", v1::Finding::OUTLIER, 1, /*edge=*/0, true);   // which it sends
  Find("a", v1::Finding::OUTLIER, 1, /*edge=*/99, true);  // there is none
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_EQ(c.LastEvent("verify"), "");
}

}  // namespace
}  // namespace longhaul::coordinator
