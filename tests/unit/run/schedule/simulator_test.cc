#include "run/schedule/simulator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stop_token>
#include <thread>

#include "run/plan/chain.h"

namespace longhaul::schedule {
namespace {

PipelineCost Uniform(uint32_t stages, uint32_t microbatches, double forward, double backward) {
  PipelineCost cost;
  cost.microbatches = microbatches;
  cost.stages.assign(stages, {.forward = absl::Seconds(forward),
                              .backward = absl::Seconds(backward),
                              .depth = microbatches});
  cost.boundaries.assign(chain::Boundaries(stages), {});
  return cost;
}

void SetRate(PipelineCost* cost, double bytes_per_second) {
  for (StageCost& stage : cost->stages) {
    stage.egress_bytes_per_second = stage.ingress_bytes_per_second = bytes_per_second;
  }
}
void SetBytes(PipelineCost* cost, double forward, double backward) {
  for (BoundaryCost& boundary : cost->boundaries) {
    boundary.forward.bytes = forward;
    boundary.backward.bytes = backward;
  }
}

double StepSeconds(const PipelineCost& cost) {
  const auto result = Simulate(cost);
  EXPECT_TRUE(result.ok()) << result.status();
  return absl::ToDoubleSeconds(result->step);
}

// Without a look at `stop` in between it takes minutes.
TEST(SimulatorTest, IsGivenUpWhileItRuns) {
  std::stop_source stop;
  const std::jthread stopper([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop.request_stop();
  });
  EXPECT_EQ(Simulate(Uniform(64, 65'536, 1, 2), stop.get_token()).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(SimulatorTest, OneStageIsItsCompute) {
  const auto result = Simulate(Uniform(1, 8, 1, 2));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->step, absl::Seconds(24));
  EXPECT_EQ(result->lower_bound, absl::Seconds(24));
  EXPECT_EQ(result->bottleneck, "compute of stage 0");
}

TEST(SimulatorTest, ComputeBound1F1BIsTheTextbookFormula) {
  PipelineCost cost = Uniform(4, 8, 1, 2);
  cost.schedule = ScheduleKind::kOneFOneB;
  EXPECT_DOUBLE_EQ(StepSeconds(cost), (8 + 4 - 1) * 3.0);
  cost.schedule = ScheduleKind::kGpipe;
  EXPECT_DOUBLE_EQ(StepSeconds(cost), (8 + 4 - 1) * 3.0);
}

TEST(SimulatorTest, StepsThatOverlapHaveNoFillAndDrain) {
  PipelineCost cost = Uniform(4, 8, 1, 2);
  cost.schedule = ScheduleKind::kTwoVersions;
  cost.stages[1].optimizer = absl::Seconds(4);
  const auto result = Simulate(cost);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->lower_bound, absl::Seconds(8 * 3 + 4));
  EXPECT_EQ(result->bottleneck, "compute of stage 1");
  EXPECT_NEAR(absl::ToDoubleSeconds(result->step), 28, 1e-6);
  EXPECT_NEAR(absl::ToDoubleSeconds(result->stages[0].time.compute), 24, 1e-6);
  EXPECT_NEAR(absl::ToDoubleSeconds(result->stages[1].time.optimizer), 4, 1e-6);
  cost.tied.emplace();
  EXPECT_EQ(Simulate(cost).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SimulatorTest, OneDominantLinkReachesTheBound) {
  PipelineCost cost = Uniform(2, 16, 0, 0);
  SetRate(&cost, 1000);
  SetBytes(&cost, 500, 500);
  const auto result = Simulate(cost);
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR(absl::ToDoubleSeconds(result->step), 8.5, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(result->lower_bound), 8.5, 1e-9);
}

// The table of small CPU models in the design: 4 stages, hidden 256, 256 tokens, 10 Mbit/s, fp32.
TEST(SimulatorTest, SlowLinksCostWhatTheBytesCost) {
  PipelineCost cost = Uniform(4, 16, 0.007, 0.014);
  SetRate(&cost, 10e6 / 8 * 0.956);
  SetBytes(&cost, 262144, 262144);
  const auto result = Simulate(cost);
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR(absl::ToDoubleSeconds(result->lower_bound), 7.7, 0.15);
  EXPECT_LE(result->step, 1.03 * result->lower_bound);
  cost.schedule = ScheduleKind::kOneFOneB;
  EXPECT_GT(StepSeconds(cost), 1.25 * absl::ToDoubleSeconds(result->lower_bound))
      << "classic 1F1B starves slow links";
}

// Two stages whose messages take no time. The last one's passes end after 17 s, the first one's
// after 18 s.
TEST(SimulatorTest, ATiedMatrixIsSentWhenTheSendersPassesEnd) {
  PipelineCost cost = Uniform(2, 8, 1, 1);
  SetRate(&cost, 1000);
  cost.stages[0].optimizer = absl::Seconds(0.25);
  ASSERT_DOUBLE_EQ(StepSeconds(cost), 18.25);
  cost.tied.emplace();
  cost.tied->forward = {.bytes = 500, .latency = absl::Seconds(0.1)};
  cost.tied->backward = {.bytes = 1000, .latency = absl::Seconds(0.1)};
  auto result = Simulate(cost);
  ASSERT_TRUE(result.ok()) << result.status();
  // 18 + 0.5 + 0.1: rows of the embedding. The norm comes up at once.
  EXPECT_NEAR(absl::ToDoubleSeconds(result->step), 18.85, 1e-9);
  ASSERT_TRUE(result->tied.has_value());
  EXPECT_NEAR(result->tied->forward.busy_share, 0.5 / 18.85, 1e-9);
  EXPECT_NEAR(result->tied->backward.rate_share, 1 / 18.85, 1e-9);
  EXPECT_NEAR(result->stages[0].egress_share, 0.5 / 18.85, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(result->stages[0].time.wait_below), 2 + 0.6, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(result->lower_bound), 18.85, 1e-9);
  EXPECT_EQ(result->bottleneck, "compute of stage 1");

  // 17 + 30 + 0.1: the gradient of the head.
  cost.tied->backward.bytes = 30'000;
  result = Simulate(cost);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(absl::ToDoubleSeconds(result->step), 47.35, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(result->lower_bound), 47.35, 1e-9);
  EXPECT_EQ(result->bottleneck, "tied matrix from stage 1 to stage 0");

  EXPECT_FALSE(Simulate([] {
                 PipelineCost alone = Uniform(1, 8, 1, 1);
                 alone.tied.emplace();
                 return alone;
               }())
                   .ok());
}

// What is left of the last gradients and the head's share the last stage's egress.
TEST(SimulatorTest, ATiedMatrixSharesInterfacesWithTheLastGradients) {
  PipelineCost cost = Uniform(3, 1, 0, 0);
  SetRate(&cost, 1000);
  SetBytes(&cost, 0, 1000);
  cost.tied.emplace();
  cost.tied->backward.bytes = 1000;
  // Both leave stage 2 from 0 to 2 s; the gradient leaves stage 1 from then to 3 s.
  EXPECT_NEAR(StepSeconds(cost), 3, 1e-9);
}

void SetLead(PipelineCost* cost, uint32_t lead) {
  for (size_t s = 1; s < cost->stages.size(); ++s) cost->stages[s].activation_lead = lead;
}

TEST(SimulatorTest, ReplicasExchangeStageByStage) {
  PipelineCost cost = Uniform(2, 4, 1, 2);
  const double passes = StepSeconds(cost);
  // The last stage's passes end 2 s before the first one's, and its first forward begins 1 s late.
  cost.stages[1].reduce = cost.stages[1].reduce_last = absl::Seconds(2);
  cost.stages[1].gather = absl::Seconds(1);
  EXPECT_DOUBLE_EQ(StepSeconds(cost), passes);
  cost.stages[1].reduce = cost.stages[1].reduce_last = absl::Seconds(5);
  cost.stages[1].gather = absl::Seconds(4);
  EXPECT_DOUBLE_EQ(StepSeconds(cost), passes + 3 + 3);
  cost.stages[0].gather = absl::Seconds(7);
  cost.replicas_agree = absl::Seconds(0.5);
  EXPECT_DOUBLE_EQ(StepSeconds(cost), passes + 3 + 0.5 + 7);
}

TEST(SimulatorTest, GradientsOfReplicasLeaveBesideTheLastBackwardAndBehindTensors) {
  PipelineCost cost = Uniform(2, 4, 1, 2);
  SetRate(&cost, 100);
  SetBytes(&cost, 0, 50);
  const double passes = StepSeconds(cost);
  cost.stages[0].reduce = cost.stages[0].reduce_last = absl::Seconds(3);
  EXPECT_DOUBLE_EQ(StepSeconds(cost), passes + 3);
  cost.stages[0].reduce_last = absl::Seconds(2);  // all of what may leaves in the backward's 2 s
  EXPECT_DOUBLE_EQ(StepSeconds(cost), passes + 2);
  cost.stages[0].reduce_last = absl::Seconds(0.5);
  EXPECT_DOUBLE_EQ(StepSeconds(cost), passes + 1);
  // The last stage's last gradient takes 0.5 s, behind which the first one has a backward of 2 s.
  cost.stages[0].reduce = cost.stages[0].reduce_last = absl::ZeroDuration();
  cost.stages[1].reduce = cost.stages[1].reduce_last = absl::Seconds(3);
  EXPECT_DOUBLE_EQ(StepSeconds(cost), passes + 1);
}

TEST(SimulatorTest, ALeadReachesTheBoundWhereLinksAreAlike) {
  PipelineCost cost = Uniform(4, 16, 0.007, 0.014);
  SetRate(&cost, 10e6 / 8 * 0.956);
  SetBytes(&cost, 262144, 262144);
  SetLead(&cost, 15);
  const auto result = Simulate(cost);
  ASSERT_TRUE(result.ok());
  EXPECT_LE(result->step, 1.003 * result->lower_bound);
}

TEST(SimulatorTest, TooLongALeadSuffersFromASlowFirstStage) {
  PipelineCost cost = Uniform(8, 32, 0.01, 0.02);
  SetRate(&cost, 1.2e6);
  SetBytes(&cost, 262144, 262144);
  cost.stages[0].egress_bytes_per_second = cost.stages[0].ingress_bytes_per_second = 0.6e6;
  const double as_ready = StepSeconds(cost);
  SetLead(&cost, 31);
  EXPECT_GT(StepSeconds(cost), 1.3 * as_ready);
}

TEST(SimulatorTest, ALeadNeedsDepthAbove) {
  PipelineCost cost = Uniform(4, 16, 1, 1);
  cost.stages[1].depth = 8;
  cost.stages[1].activation_lead = 16;
  cost.stages[2].activation_lead = 8;
  EXPECT_TRUE(Simulate(cost).ok());
  cost.stages[3].activation_lead = 9;
  EXPECT_EQ(Simulate(cost).status().code(), absl::StatusCode::kInvalidArgument);
  cost.stages[3].activation_lead = 0;
  cost.schedule = ScheduleKind::kOneFOneB;
  EXPECT_EQ(Simulate(cost).status().code(), absl::StatusCode::kInvalidArgument)
      << "1F1B has four microbatches in flight at the first stage";
}

TEST(SimulatorTest, APairsCapCounts) {
  PipelineCost cost = Uniform(3, 16, 0, 0);
  SetBytes(&cost, 500, 500);
  SetRate(&cost, 1000);
  const auto free = Simulate(cost);
  ASSERT_TRUE(free.ok());
  cost.boundaries[1].forward.bytes_per_second = 100;
  const auto capped = Simulate(cost);
  ASSERT_TRUE(capped.ok());
  EXPECT_EQ(capped->bottleneck, "link from stage 1 to stage 2");
  // 0.5 s until the first one is there, 5 s each, and its gradient's two hops back.
  EXPECT_NEAR(absl::ToDoubleSeconds(capped->lower_bound), 0.5 + 16 * 5 + 2 * 0.5, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(capped->step), 0.5 + 16 * 5 + 2 * 0.5, 1e-9);
  EXPECT_GT(capped->step, free->step);
}

// Stage 1 takes from both neighbours at once. 0 -> 1 is capped below half of its ingress, so 2 -> 1
// gets the rest and not a half.
TEST(SimulatorTest, WhatACapLeavesGoesToTheOthers) {
  PipelineCost cost = Uniform(3, 2, 0, 0);
  SetBytes(&cost, 0, 0);
  cost.boundaries[0].forward.bytes = 100;
  cost.boundaries[0].forward.bytes_per_second = 25;
  cost.boundaries[1].backward.bytes = 300;
  cost.stages[1].ingress_bytes_per_second = 100;
  // First activation: 0 to 4 s. Second: 4 to 8 s, while the first gradient comes at 75 a second: it
  // is there at 8 s. Second gradient alone at 100 a second.
  EXPECT_NEAR(StepSeconds(cost), 4 + 4 + 3, 1e-9);
  // An interface that loses something by being shared.
  cost.shared_efficiency = 0.5;
  // From 4 to 8 s there are 50 to share, a half each; then 200 of the gradient are left.
  EXPECT_NEAR(StepSeconds(cost), 4 + 4 + 2 + 3, 1e-9);
}

TEST(SimulatorTest, SaysWhereTimeGoes) {
  PipelineCost cost = Uniform(2, 2, 1, 2);
  cost.stages[0].optimizer = absl::Seconds(0.5);
  SetBytes(&cost, 100, 50);
  SetRate(&cost, 50);
  cost.boundaries[0].forward.decode = absl::Seconds(0.25);
  const auto result = Simulate(cost);
  ASSERT_TRUE(result.ok());
  // F0 ends at 1, arrives at 3, is decoded at 3.25; the last stage is busy until 6.25. F1's
  // activation came meanwhile; its work ends at 9.25 and its gradient is there at 10.25.
  EXPECT_EQ(result->step, absl::Seconds(12.75));
  const StageTime first = result->stages[0].time, last = result->stages[1].time;
  EXPECT_EQ(first.compute, absl::Seconds(6));
  EXPECT_EQ(first.optimizer, absl::Seconds(0.5));
  // Until B0's gradient comes at 7.25, and from 9.25 until B1's does.
  EXPECT_EQ(first.wait_below, absl::Seconds(5.25 + 1));
  EXPECT_EQ(first.wait_above, absl::ZeroDuration());
  EXPECT_EQ(last.compute, absl::Seconds(6));
  EXPECT_EQ(last.codec, absl::ZeroDuration()) << "it decodes while it computes";
  EXPECT_EQ(last.wait_above, absl::Seconds(12.75 - 6));
  EXPECT_DOUBLE_EQ(result->boundaries[0].forward.busy_share, 4 / 12.75);
  EXPECT_DOUBLE_EQ(result->boundaries[0].forward.rate_share, 4 / 12.75);
  EXPECT_DOUBLE_EQ(result->boundaries[0].backward.busy_share, 2 / 12.75);
  EXPECT_DOUBLE_EQ(result->stages[1].ingress_share, 4 / 12.75);
}

TEST(SimulatorTest, ADecoderThatIsWaitedForIsCounted) {
  PipelineCost cost = Uniform(2, 4, 1, 0);
  cost.boundaries[0].forward.decode = absl::Seconds(3);
  const auto result = Simulate(cost);
  ASSERT_TRUE(result.ok());
  // After its first forward the last stage waits for the other three to be decoded, 2 s each.
  EXPECT_EQ(result->stages[1].time.codec, absl::Seconds(6));
}

TEST(SimulatorTest, LatencyCountsInArrivalAndWayOut) {
  PipelineCost cost = Uniform(2, 1, 1, 1);
  cost.boundaries[0].forward.latency = absl::Seconds(0.125);
  cost.boundaries[0].backward.latency = absl::Seconds(0.375);
  EXPECT_DOUBLE_EQ(StepSeconds(cost), 4.5);
}

TEST(SimulatorTest, SharesAnInterfaceFairly) {
  // Stage 1 sends down and up at once: each gets half of its egress.
  PipelineCost cost = Uniform(3, 1, 0, 0);
  SetBytes(&cost, 100, 100);
  SetRate(&cost, 100);
  // down 0->1, down 1->2, up 2->1, up 1->0: one after the other for a single microbatch.
  EXPECT_NEAR(StepSeconds(cost), 4.0, 1e-9);
}

TEST(SimulatorTest, RefusesNonsense) {
  PipelineCost cost = Uniform(2, 2, 1, 1);
  cost.boundaries.clear();
  EXPECT_EQ(Simulate(cost).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Simulate({}).status().code(), absl::StatusCode::kInvalidArgument);
  PipelineCost nothing_left = Uniform(2, 2, 1, 1);
  nothing_left.shared_efficiency = 0;
  EXPECT_EQ(Simulate(nothing_left).status().code(), absl::StatusCode::kInvalidArgument);
  PipelineCost no_rate = Uniform(2, 2, 1, 1);
  no_rate.boundaries[0].forward.bytes_per_second = 0;
  EXPECT_EQ(Simulate(no_rate).status().code(), absl::StatusCode::kInvalidArgument);
  PipelineCost negative = Uniform(1, 1, -1, 1);
  EXPECT_EQ(Simulate(negative).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::schedule
