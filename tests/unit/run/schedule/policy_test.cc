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
    order +=
        (work->task == Task::kForward ? "F" : "B") + std::to_string(work->slice.microbatch.value());
  }
  EXPECT_EQ(order, "F0B0F1B1");
  EXPECT_TRUE(policy.Done());
}

// As "F0.1".
std::string NameOf(const Work& work) {
  return (work.task == Task::kForward ? "F" : "B") + std::to_string(work.slice.microbatch.value()) +
         "." + std::to_string(work.slice.index) + " ";
}

TEST(StagePolicyTest, SlicesGoForwardInTheirOrderAndBackFromTheLast) {
  StagePolicy policy({.kind = ScheduleKind::kLinkAware,
                      .stage = StageIndex(1),
                      .stages = 2,
                      .microbatches = 2,
                      .slices = 3,
                      .depth = 2});
  for (uint32_t m = 0; m < 2; ++m) {
    for (uint32_t slice = 0; slice < 3; ++slice) policy.InputReady({Microbatch(m), slice});
  }
  std::string order;
  while (const auto work = policy.Next()) {
    RunWork(policy, *work);
    order += NameOf(*work);
  }
  EXPECT_EQ(order, "F0.0 F0.1 F0.2 B0.2 B0.1 B0.0 F1.0 F1.1 F1.2 B1.2 B1.1 B1.0 ");
  EXPECT_TRUE(policy.Done());
}

TEST(StagePolicyTest, DepthCountsTheSlicesOfSoManyMicrobatches) {
  StagePolicy policy({.kind = ScheduleKind::kLinkAware,
                      .stage = StageIndex(0),
                      .stages = 2,
                      .microbatches = 8,
                      .slices = 2,
                      .depth = 2});
  for (int i = 0; i < 4; ++i) RunWork(policy, *policy.Next());
  EXPECT_EQ(policy.in_flight(), 2u);
  EXPECT_EQ(policy.Next(), std::nullopt);
  policy.GradientReady({Microbatch(0), 0});
  EXPECT_EQ(policy.Next(), std::nullopt) << "slice 1 goes back first";
  policy.GradientReady({Microbatch(0), 1});
  EXPECT_EQ(NameOf(*policy.Next()), "B0.1 ");
  RunWork(policy, *policy.Next());
  EXPECT_EQ(NameOf(*policy.Next()), "B0.0 ");
  RunWork(policy, *policy.Next());
  EXPECT_EQ(policy.in_flight(), 1u);
  for (const char* next : {"F2.0 ", "F2.1 "}) {
    EXPECT_EQ(NameOf(*policy.Next()), next);
    RunWork(policy, *policy.Next());
  }
  EXPECT_EQ(policy.in_flight(), 2u);
}

TEST(StagePolicyTest, ALeadCountsTheSlicesOfSoManyMicrobatches) {
  StagePolicy policy({.kind = ScheduleKind::kLinkAware,
                      .stage = StageIndex(1),
                      .stages = 2,
                      .microbatches = 3,
                      .slices = 2,
                      .depth = 3,
                      .activation_lead = 2});
  std::string let;
  for (uint32_t place = 0; place < 6; ++place) {
    policy.InputReady(SliceOrder(2).At(place, Direction::kForward));
    let += std::to_string(policy.GradientsThatMayLeave()) + " ";
  }
  EXPECT_EQ(let, "0 0 0 1 2 6 ");
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
