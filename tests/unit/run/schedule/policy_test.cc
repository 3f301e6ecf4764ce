#include "run/schedule/policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul::schedule {
namespace {

void RunWork(StagePolicy& policy, const Work& work) {
  policy.Begin(work);
  policy.End(work);
}

TEST(StagePolicyTest, LastStageAlternatesFromTheStart) {
  StagePolicy policy({.kind = ScheduleKind::kLinkAware,
                      .stage = StageIndex(1),
                      .stages = 2,
                      .microbatches = 2,
                      .depth = 2});
  EXPECT_EQ(policy.Next(), std::nullopt);
  policy.InputReady(Microbatch(0));
  policy.InputReady(Microbatch(1));
  std::string order;
  while (const auto work = policy.Next()) {
    RunWork(policy, *work);
    order += (work->task == Task::kForward ? "F" : "B") + std::to_string(work->microbatch.value());
  }
  EXPECT_EQ(order, "F0B0F1B1");
  EXPECT_TRUE(policy.Done());
}

TEST(StagePolicyTest, DepthLimitsWhatIsInFlight) {
  StagePolicy policy({.kind = ScheduleKind::kLinkAware,
                      .stage = StageIndex(0),
                      .stages = 2,
                      .microbatches = 8,
                      .depth = 3});
  for (int i = 0; i < 3; ++i) RunWork(policy, *policy.Next());
  EXPECT_EQ(policy.in_flight(), 3u);
  EXPECT_EQ(policy.Next(), std::nullopt);
  policy.GradientReady(Microbatch(0));
  EXPECT_EQ(policy.Next(), (Work{Task::kBackward, Microbatch(0)}));
}

TEST(StagePolicyTest, OneFOneBLowersDepthToTheStagesBehind) {
  StagePolicy policy({.kind = ScheduleKind::kOneFOneB,
                      .stage = StageIndex(1),
                      .stages = 4,
                      .microbatches = 8,
                      .depth = 8});
  EXPECT_EQ(policy.depth(), 3u);
}

TEST(StagePolicyTest, GpipeRunsNoBackwardBeforeTheLastForward) {
  StagePolicy policy({.kind = ScheduleKind::kGpipe,
                      .stage = StageIndex(0),
                      .stages = 2,
                      .microbatches = 2,
                      .depth = 1});
  RunWork(policy, *policy.Next());
  policy.GradientReady(Microbatch(0));
  EXPECT_EQ(policy.Next(), (Work{Task::kForward, Microbatch(1)}));
  RunWork(policy, *policy.Next());
  EXPECT_EQ(policy.Next(), (Work{Task::kBackward, Microbatch(0)}));
}

TEST(StagePolicyTest, BackwardsWaitForTheirTurn) {
  StagePolicy policy({.kind = ScheduleKind::kLinkAware,
                      .stage = StageIndex(0),
                      .stages = 2,
                      .microbatches = 2,
                      .depth = 2});
  RunWork(policy, *policy.Next());
  RunWork(policy, *policy.Next());
  policy.GradientReady(Microbatch(1));
  EXPECT_EQ(policy.Next(), std::nullopt) << "gradient 0 must be accumulated first";
  policy.GradientReady(Microbatch(0));
  EXPECT_EQ(policy.Next(), (Work{Task::kBackward, Microbatch(0)}));
}

TEST(StagePolicyTest, ForwardOnlyNeedsNoGradients) {
  StagePolicy policy(
      {.stage = StageIndex(0), .stages = 2, .microbatches = 3, .depth = 1, .forward_only = true});
  for (int i = 0; i < 3; ++i) RunWork(policy, *policy.Next());
  EXPECT_TRUE(policy.Done());
}

TEST(StagePolicyTest, ForwardOnlyOutputsWaitForTheStageBelow) {
  StagePolicy policy(
      {.stage = StageIndex(0), .stages = 2, .microbatches = 9, .depth = 6, .forward_only = true});
  EXPECT_FALSE(policy.MayBeTaken(Microbatch(0))) << "it is not there";
  for (int i = 0; i < 6; ++i) RunWork(policy, *policy.Next());
  EXPECT_EQ(policy.Next(), std::nullopt);
  EXPECT_FALSE(policy.AwaitsInput());
  EXPECT_FALSE(policy.MayBeTaken(Microbatch(1))) << "0 comes first";
  EXPECT_TRUE(policy.MayBeTaken(Microbatch(0)));
  policy.OutputTaken(Microbatch(0));
  EXPECT_EQ(policy.in_flight(), 5u);
  RunWork(policy, *policy.Next());
  EXPECT_EQ(policy.Next(), std::nullopt);
  for (uint32_t i = 1; i < 3; ++i) {
    policy.OutputTaken(Microbatch(i));
    RunWork(policy, *policy.Next());
  }
  EXPECT_TRUE(policy.Done()) << "nobody waits for the last ones to be taken";
}

TEST(StagePolicyTest, ForwardOnlyAFewOutputsMayAlwaysWait) {
  for (const ScheduleKind kind :
       {ScheduleKind::kLinkAware, ScheduleKind::kOneFOneB, ScheduleKind::kGpipe}) {
    StagePolicy policy({.kind = kind,
                        .stage = StageIndex(0),
                        .stages = 2,
                        .microbatches = 9,
                        .depth = 1,
                        .forward_only = true});
    for (uint32_t i = 0; i < schedule::kLeastOutputs; ++i) RunWork(policy, *policy.Next());
    EXPECT_EQ(policy.Next(), std::nullopt);
  }
}

TEST(StagePolicyTest, ForwardOnlyNobodyTakesWhatTheLastStageMakes) {
  StagePolicy policy(
      {.stage = StageIndex(1), .stages = 2, .microbatches = 9, .depth = 1, .forward_only = true});
  for (uint32_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(policy.AwaitsInput());
    policy.InputReady(Microbatch(i));
    RunWork(policy, *policy.Next());
  }
  EXPECT_TRUE(policy.Done());
}

TEST(StagePolicyTest, GradientsStayBehindActivationsByTheLead) {
  StagePolicy policy(
      {.stage = StageIndex(2), .stages = 4, .microbatches = 5, .depth = 5, .activation_lead = 3});
  std::vector<uint32_t> may_leave;
  for (uint32_t m = 0; m < 5; ++m) {
    may_leave.push_back(policy.GradientsThatMayLeave());
    policy.InputReady(Microbatch(m));
  }
  EXPECT_EQ(may_leave, (std::vector<uint32_t>{0, 0, 0, 1, 2}));
  EXPECT_EQ(policy.GradientsThatMayLeave(), 5u) << "no more activations come";
}

TEST(StagePolicyTest, ALeadOfAllWaitsForTheLastActivation) {
  StagePolicy policy(
      {.stage = StageIndex(1), .stages = 2, .microbatches = 2, .depth = 2, .activation_lead = 2});
  policy.InputReady(Microbatch(0));
  EXPECT_EQ(policy.GradientsThatMayLeave(), 0u);
  policy.InputReady(Microbatch(1));
  EXPECT_EQ(policy.GradientsThatMayLeave(), 2u);
}

TEST(StagePolicyTest, WithoutALeadGradientsNeverStay) {
  const StagePolicy policy({.stage = StageIndex(1), .stages = 3, .microbatches = 4, .depth = 2});
  EXPECT_EQ(policy.GradientsThatMayLeave(), 4u);
}

TEST(StagePolicyTest, SaysWhatItWaitsFor) {
  StagePolicy policy({.stage = StageIndex(1), .stages = 3, .microbatches = 2, .depth = 1});
  EXPECT_TRUE(policy.AwaitsInput());
  policy.InputReady(Microbatch(0));
  RunWork(policy, *policy.Next());
  EXPECT_FALSE(policy.AwaitsInput()) << "its depth has no room";
  policy.GradientReady(Microbatch(0));
  RunWork(policy, *policy.Next());
  EXPECT_TRUE(policy.AwaitsInput());
  policy.InputReady(Microbatch(1));
  RunWork(policy, *policy.Next());
  EXPECT_FALSE(policy.AwaitsInput()) << "no forward is left";
}

TEST(EffectiveDepth, IsWhatTheScheduleAllows) {
  PolicyOptions options{.stage = StageIndex(1), .stages = 4, .microbatches = 8, .depth = 5};
  EXPECT_EQ(EffectiveDepth(options), 5u);
  options.kind = ScheduleKind::kOneFOneB;
  EXPECT_EQ(EffectiveDepth(options), 3u);
  options.kind = ScheduleKind::kGpipe;
  EXPECT_EQ(EffectiveDepth(options), 8u);
}

TEST(StagePolicyDeathTest, RefusesTheSameInputTwice) {
  StagePolicy policy({.stage = StageIndex(1), .stages = 2, .microbatches = 3, .depth = 1});
  policy.InputReady(Microbatch(0));
  EXPECT_DEATH(policy.InputReady(Microbatch(0)), "ready twice");
}

}  // namespace
}  // namespace longhaul::schedule
