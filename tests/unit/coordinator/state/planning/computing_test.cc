// Plans are computed beside the state machine: what happens meanwhile, and what comes too late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class Computing : public ::testing::Test {
 protected:
  // All is in but the plan.
  void ToComputing() {
    c.plans_are_computed = false;
    c.Join("a");
    c.Join("b");
    c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
    c.ToPreparing(kAb, "tiny-1");
    ASSERT_NE(Asked(), nullptr);
    EXPECT_EQ(c.StateOf("tiny-1"), "planning");
    EXPECT_EQ(c.views().RunOf("tiny-1")->stages(0).state(), "planning");
  }
  const command::ComputePlan* Asked() const { return c.LastReply<command::ComputePlan>(); }
  // The id of the newest computation that was given up.
  ComputationId Cancelled() const {
    const auto* cancelled = c.LastReply<command::CancelComputation>();
    return cancelled == nullptr ? ComputationId(0) : cancelled->id;
  }
  int Count() const {
    int count = 0;
    for (const Command& command : c.commands) {
      count += std::holds_alternative<command::ComputePlan>(command);
    }
    return count;
  }
  Coordinator c;
};

TEST_F(Computing, TheRunIsPlanningUntilThePlanIsThere) {
  ToComputing();
  c.Advance(absl::Seconds(9));
  for (const std::string& worker : kAb) {
    v1::WorkerMessage heartbeat;
    heartbeat.mutable_heartbeat();
    c.Tick(c.Said(worker, heartbeat));
  }
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_EQ(Count(), 1);
  c.Computed();
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(Cancelled(), ComputationId(0));
  c.Computed();  // said twice
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

TEST_F(Computing, WhatCannotBePlannedFailsTheRun) {
  ToComputing();
  c.plan_with = [](const PlanRequest&) { return absl::FailedPreconditionError("no memory at b"); };
  c.Computed();
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_EQ(c.ReasonOf("tiny-1"), "no memory at b");
  EXPECT_EQ(Cancelled(), ComputationId(0)) << "it is over already";
}

TEST_F(Computing, ALostWorkerGivesItUp) {
  ToComputing();
  c.Tick(event::WorkerLeft{c.sessions["b"], "closed"});
  EXPECT_EQ(c.ReasonOf("tiny-1"), "worker b was lost while the plan was made: closed");
  EXPECT_EQ(Cancelled(), Asked()->id);
  c.Computed();  // too late
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kAssign), 0);
}

TEST_F(Computing, AStopGivesItUp) {
  ToComputing();
  c.Tick(event::StopAsked{RequestId(5), "tiny-1", false});
  EXPECT_EQ(c.StateOf("tiny-1"), "stopped");
  EXPECT_EQ(Cancelled(), Asked()->id);
  c.Computed();
  EXPECT_EQ(c.StateOf("tiny-1"), "stopped");
}

TEST_F(Computing, ARestartBeginsAnew) {
  ToComputing();
  const command::ComputePlan old = *Asked();
  c.Restart();
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "queued");
  for (const std::string& worker : kAb) c.Join(worker);
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  c.Tick(event::PlanComputed{old.id, MakePlan(old.request)});
  EXPECT_EQ(c.StateOf("tiny-1"), "planning") << "nobody waits for that one";
  c.ToPreparing(kAb, "tiny-1");
  c.Computed();
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
  EXPECT_EQ(c.records.at("tiny-1").plan->assignment.epoch, Epoch(2));
}

TEST_F(Computing, AResumedRunWaitsForItsOwnPlan) {
  ToComputing();
  c.Tick(event::StopAsked{RequestId(5), "tiny-1", false});
  const command::ComputePlan old = *Asked();
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "unused", 6, true));
  c.ToPreparing(kAb, "tiny-1");
  ASSERT_NE(Asked()->id, old.id);
  c.Tick(event::PlanComputed{old.id, MakePlan(old.request)});
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  c.Computed();
  EXPECT_EQ(c.records.at("tiny-1").plan->assignment.epoch, Epoch(2));
}

TEST_F(Computing, AWorkerThatMovesIsPlannedForWhereItIs) {
  ToComputing();
  const ComputationId first = Asked()->id;
  v1::Hello moved = HelloAt("a", "tiny-1", 0);
  moved.mutable_endpoints(0)->set_addresses(0, "elsewhere:7");
  c.Join(moved);
  EXPECT_EQ(Cancelled(), first);
  ASSERT_EQ(Count(), 2);
  EXPECT_EQ(Asked()->request.workers[0].endpoints[0].addresses[0], "elsewhere:7");
  EXPECT_EQ(Asked()->request.workers[0].to.size(), 1u) << "the link was measured again";
  c.Computed();
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

TEST_F(Computing, AWorkerThatMovesWhileItsLinkIsMeasuredIsAskedAgain) {
  c.probes_are_answered = false;
  c.Join("a");
  c.Join("b");
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
  c.ToPreparing(kAb, "tiny-1");
  ASSERT_EQ(c.Count("b", v1::WorkerCommand::kProbeLink), 1);
  v1::Hello moved = HelloAt("a", "tiny-1", 0);
  moved.mutable_endpoints(0)->set_addresses(0, "elsewhere:7");
  c.Join(moved);
  for (const std::string& worker : kAb) c.Probed(worker);  // of where it was
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  ASSERT_EQ(c.Count("b", v1::WorkerCommand::kProbeLink), 2);
  EXPECT_EQ(c.Last("b", v1::WorkerCommand::kProbeLink)->probe_link().addresses(0), "elsewhere:7");
  for (const std::string& worker : kAb) c.Probed(worker);
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing");
}

TEST_F(Computing, ARequestToPlanIsAnsweredWhenItIsComputed) {
  c.plans_are_computed = false;
  c.Join("a");
  c.Tick(event::PlanAsked{RequestId(50), SmallSpec("tiny", 1), {}, RunId("plan-1"), "a secret"});
  c.Data("plan-1");
  c.Times("a", "plan-1", 1);
  EXPECT_EQ(c.LastReply<command::Reply<v1::PlanReply>>(), nullptr);
  c.Computed();
  ASSERT_NE(c.LastReply<command::Reply<v1::PlanReply>>(), nullptr);
  EXPECT_TRUE(c.LastReply<command::Reply<v1::PlanReply>>()->reply.ok());
  // And one whose worker goes is refused, and computed for nobody.
  c.Tick(event::PlanAsked{RequestId(51), SmallSpec("tiny", 1), {}, RunId("plan-2"), "a secret"});
  c.Data("plan-2");
  c.Times("a", "plan-2", 1);
  const ComputationId asked = Asked()->id;
  c.Tick(event::WorkerLeft{c.sessions["a"], "closed"});
  EXPECT_FALSE(c.LastReply<command::Reply<v1::PlanReply>>()->reply.ok());
  EXPECT_EQ(Cancelled(), asked);
}

TEST_F(Computing, ASearchThatWasCutShortIsSaid) {
  ToComputing();
  c.plan_with = [](const PlanRequest& request) {
    StatusOr<Plan> plan = MakePlan(request);
    plan->prediction.cut_short = "the search for depths ended after 7 of 9 stages";
    return plan;
  };
  c.Computed();
  EXPECT_EQ(c.LastEvent("plan"),
            "the plan may not be the best: the search for depths ended after 7 of 9 stages");
}

}  // namespace
}  // namespace longhaul::coordinator
