// Workers and records of different assignments never mix, even if the assignments have the same
// epoch: after the records were put back from an old copy, or beside another coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

StateOptions OfLeader(uint64_t term, char tenure) {
  StateOptions options;
  options.lead = {.term = term, .tenure = Tenure(std::string(16, tenure))};
  return options;
}

RunSpec RecoveringSpec() {
  RunSpec spec = SmallSpec("tiny", 2);
  spec.recovery.attempts = 3;
  return spec;
}

class Stamps : public ::testing::Test {
 protected:
  // Epoch 1 trains on a and b.
  void Train(Coordinator& c) {
    c.Join("a");
    c.Join("b");
    c.Tick(SubmitOf(RecoveringSpec(), "tiny-1"));
    c.ToRunning(kAb, "tiny-1");
    c.Steps(kAb, "tiny-1", 1);
  }
  // A worker that carries out an epoch that another coordinator began.
  static v1::Hello Elsewhere(const std::string& name, uint64_t epoch, uint32_t stage) {
    v1::Hello hello = HelloAt(name, "tiny-1", stage, epoch);
    hello.set_stamp(12345);
    return hello;
  }
  static uint64_t EpochOf(const Coordinator& c) { return c.views().RunOf("tiny-1")->epoch(); }
};

TEST_F(Stamps, CommandsNameTheAssignment) {
  Coordinator c({}, OfLeader(3, 't'));
  Train(c);
  const v1::WorkerCommand assign = *c.Last("a", v1::WorkerCommand::kAssign);
  const v1::Assignment& assignment = assign.assign().assignment();
  EXPECT_EQ(assignment.term(), 3u);
  EXPECT_EQ(assignment.tenure(), std::string(16, 't'));
  EXPECT_EQ(assignment.hash().size(), 32u);
  EXPECT_EQ(assign.stamp(), StampOf(assignment.hash()).value());
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kStart)->stamp(), assign.stamp());
  // The measurements before belong to no assignment yet.
  EXPECT_NE(c.Last("a", v1::WorkerCommand::kMeasure)->stamp(), assign.stamp());
  EXPECT_NE(c.Last("a", v1::WorkerCommand::kMeasure)->stamp(), 0u);
}

// The same epoch of the same run, begun by two leaders.
TEST_F(Stamps, TwoLeadersGiveLinksDifferentSecrets) {
  Coordinator one({}, OfLeader(3, 't')), other({}, OfLeader(3, 'u'));
  std::set<std::string> secrets;
  std::set<uint64_t> stamps;
  for (Coordinator* c : {&one, &other}) {
    Train(*c);
    const v1::WorkerCommand* assign = c->Last("a", v1::WorkerCommand::kAssign);
    EXPECT_EQ(assign->epoch(), 1u);
    secrets.insert(assign->assign().edge_secrets().at(0));
    secrets.insert(assign->assign().link_secret());
    stamps.insert(assign->stamp());
    stamps.insert(c->Last("a", v1::WorkerCommand::kMeasure)->stamp());
  }
  EXPECT_EQ(secrets.size(), 4u);
  EXPECT_EQ(stamps.size(), 4u);
}

TEST_F(Stamps, AReportOfAnotherAssignmentChangesNothing) {
  Coordinator c;
  Train(c);
  v1::WorkerMessage message = c.About("tiny-1");
  message.set_stamp(message.stamp() + 1);
  message.mutable_finished()->set_step(4);
  c.Tick(c.Said("a", message));
  message.mutable_error()->set_message("out of memory");
  c.Tick(c.Said("a", message));
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
  EXPECT_THAT(c.LastEvent("note"), HasSubstr("have another assignment"));
}

TEST_F(Stamps, AnAnswerToAnotherPlanIsNoMeasurement) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  c.Tick(SubmitOf(RecoveringSpec(), "tiny-1"));
  c.Data("tiny-1");
  for (const std::string& worker : kAb) {
    v1::WorkerMessage message = c.About("tiny-1");
    message.set_stamp(message.stamp() + 1);
    *message.mutable_layer_times() = SmallTimes();
    c.Tick(c.Said(worker, message));
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  for (const std::string& worker : kAb) c.Times(worker, "tiny-1", 1);
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

TEST_F(Stamps, AWorkerOfAnotherAssignmentIsNotAttached) {
  Coordinator c;
  Train(c);
  c.Restart();
  c.Join(HelloAt("a", "tiny-1", 0));
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAbort), 0);
  c.Join(Elsewhere("b", 1, 1));
  const v1::WorkerCommand* abort = c.Last("b", v1::WorkerCommand::kAbort);
  ASSERT_NE(abort, nullptr);
  EXPECT_EQ(abort->stamp(), 12345u);
  // It has no stage of this run, so the next epoch begins, above the one that it named.
  c.Pass(absl::Seconds(10), kAb);
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(EpochOf(c), 2u);
}

// The store ends with epoch 1, and workers carry out epoch 4.
TEST_F(Stamps, TheNextEpochIsAboveAllThatWorkersName) {
  Coordinator c;
  Train(c);
  c.Restart();
  c.Join(Elsewhere("a", 4, 0));
  c.Join(Elsewhere("b", 4, 1));
  c.Pass(absl::Seconds(10), kAb);
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(EpochOf(c), 5u);
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kAssign)->epoch(), 5u);
}

TEST_F(Stamps, AnEpochThatIsNamedWhileItIsPlannedIsTaken) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  c.Tick(SubmitOf(RecoveringSpec(), "tiny-1"));
  c.Data("tiny-1");
  c.Join(Elsewhere("z", 7, 0));
  EXPECT_EQ(c.Count("z", v1::WorkerCommand::kAbort), 1);
  for (const std::string& worker : kAb) c.Times(worker, "tiny-1", 1);
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(EpochOf(c), 8u);
  for (const std::string& worker : kAb) c.Ready(worker, "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "running");
}

TEST_F(Stamps, ARefusedAssignmentLeadsToAHigherEpoch) {
  Coordinator c;
  c.Join("a");
  c.Join("b");
  c.Tick(SubmitOf(RecoveringSpec(), "tiny-1"));
  c.ToPreparing(kAb, "tiny-1");
  v1::WorkerMessage refusal = c.About("tiny-1");
  refusal.mutable_error()->set_message("this worker carries out epoch 6");
  refusal.mutable_error()->set_newest_epoch(6);
  c.Tick(c.Said("a", refusal));
  c.Pass(absl::Seconds(10), kAb);
  EXPECT_EQ(EpochOf(c), 7u);
  EXPECT_NE(c.StateOf("tiny-1"), "failed");
}

TEST_F(Stamps, AWorkerCannotUseUpTheNumbersOfEpochs) {
  Coordinator c;
  Train(c);
  c.Join(Elsewhere("z", ~uint64_t{0}, 0));
  v1::WorkerMessage refusal = c.About("tiny-1");
  refusal.mutable_error()->set_message("this worker carries out another epoch");
  refusal.mutable_error()->set_newest_epoch(5'000'000);
  c.Tick(c.Said("a", refusal));
  c.Pass(absl::Seconds(10), kAb);
  EXPECT_EQ(EpochOf(c), 2u);
}

// As an older version stored it.
TEST_F(Stamps, APlanWithoutAHashIsNotCarriedOn) {
  Coordinator before;
  Train(before);
  std::vector<RunRecord> stored = before.Stored();
  stored.front().plan->assignment.hash.clear();
  Coordinator c(stored);
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "recovering");
  c.Join(HelloAt("a", "tiny-1", 0));
  c.Join(HelloAt("b", "tiny-1", 1));
  c.Pass(absl::Seconds(10), kAb);
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(EpochOf(c), 2u);
  EXPECT_EQ(c.Last("a", v1::WorkerCommand::kAssign)->assign().assignment().hash().size(), 32u);
}

TEST_F(Stamps, RecordsThatWerePutBackAreTold) {
  StateOptions options = OfLeader(3, 't');
  options.newest_change = 850;
  Coordinator c({}, options);
  v1::Hello hello = HelloOf("a");
  hello.set_tenure(std::string(16, 'u'));
  hello.set_change(850);
  c.Join(hello);
  EXPECT_THAT(c.LastEvent("worker"), HasSubstr("joined"));
  hello.set_change(900);
  c.Join(hello);
  EXPECT_THAT(c.LastEvent("worker"),
              HasSubstr("worker a has seen change 900, and these records ended with change 850"));
}

}  // namespace
}  // namespace longhaul::coordinator
