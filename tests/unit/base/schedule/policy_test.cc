#include "base/schedule/policy.h"

#include <gtest/gtest.h>

#include <string>

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

TEST(StagePolicyTest, ActivationsFirstKeepsGradientsUntilBothNeighboursAreFree) {
  StagePolicy policy({.stage = StageIndex(2),
                      .stages = 4,
                      .microbatches = 2,
                      .depth = 2,
                      .order = SendOrder::kActivationsFirst});
  for (const uint32_t m : {0u, 1u}) {
    EXPECT_FALSE(policy.HasAllInputs());
    policy.InputReady(Microbatch(m));
    RunWork(policy, *policy.Next());
    policy.ActivationSent();
  }
  EXPECT_TRUE(policy.HasAllInputs());
  EXPECT_FALSE(policy.GradientsMayLeave()) << "the stage above still receives activations";
  policy.UpstreamHasAllInputs();
  EXPECT_TRUE(policy.GradientsMayLeave());
}

TEST(StagePolicyTest, ActivationsFirstKeepsGradientsUntilItsOwnActivationsHaveLeft) {
  StagePolicy policy({.stage = StageIndex(1),
                      .stages = 3,
                      .microbatches = 1,
                      .depth = 1,
                      .order = SendOrder::kActivationsFirst});
  policy.InputReady(Microbatch(0));
  RunWork(policy, *policy.Next());
  EXPECT_FALSE(policy.GradientsMayLeave());
  policy.ActivationSent();
  EXPECT_TRUE(policy.GradientsMayLeave()) << "the first stage has all its inputs from the start";
}

TEST(StagePolicyTest, AsReadyNeverKeepsGradients) {
  const StagePolicy policy({.stage = StageIndex(1), .stages = 3, .microbatches = 4, .depth = 2});
  EXPECT_TRUE(policy.GradientsMayLeave());
}

TEST(StagePolicyDeathTest, RefusesActivationsFirstWithoutDepth) {
  EXPECT_DEATH(StagePolicy({.stage = StageIndex(1),
                            .stages = 3,
                            .microbatches = 4,
                            .depth = 3,
                            .order = SendOrder::kActivationsFirst}),
               "need a depth of all microbatches");
}

TEST(StagePolicyDeathTest, RefusesTheSameInputTwice) {
  StagePolicy policy({.stage = StageIndex(1), .stages = 2, .microbatches = 3, .depth = 1});
  policy.InputReady(Microbatch(0));
  EXPECT_DEATH(policy.InputReady(Microbatch(0)), "ready twice");
}

}  // namespace
}  // namespace longhaul::schedule
