#include "base/schedule/simulator.h"

#include <gtest/gtest.h>

namespace longhaul::schedule {
namespace {

PipelineCost Uniform(uint32_t stages, uint32_t microbatches, double forward, double backward) {
  PipelineCost cost;
  cost.microbatches = microbatches;
  cost.stages.assign(stages, {.forward = absl::Seconds(forward),
                              .backward = absl::Seconds(backward),
                              .depth = microbatches});
  cost.boundaries.assign(stages - 1, {});
  return cost;
}

void SetRate(PipelineCost* cost, double bytes_per_second) {
  for (StageCost& stage : cost->stages) {
    stage.egress_bytes_per_second = stage.ingress_bytes_per_second = bytes_per_second;
  }
}
void SetBytes(PipelineCost* cost, double forward, double backward) {
  for (BoundaryCost& boundary : cost->boundaries) {
    boundary.forward_bytes = forward;
    boundary.backward_bytes = backward;
  }
}

double StepSeconds(const PipelineCost& cost) {
  const auto result = Simulate(cost);
  EXPECT_TRUE(result.ok()) << result.status();
  return absl::ToDoubleSeconds(result->step);
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

TEST(SimulatorTest, ActivationsFirstReachesTheBoundWhereLinksAreAlike) {
  PipelineCost cost = Uniform(4, 16, 0.007, 0.014);
  SetRate(&cost, 10e6 / 8 * 0.956);
  SetBytes(&cost, 262144, 262144);
  cost.order = SendOrder::kActivationsFirst;
  const auto result = Simulate(cost);
  ASSERT_TRUE(result.ok());
  EXPECT_LE(result->step, 1.003 * result->lower_bound);
}

TEST(SimulatorTest, ActivationsFirstSuffersFromASlowFirstStage) {
  PipelineCost cost = Uniform(8, 32, 0.01, 0.02);
  SetRate(&cost, 1.2e6);
  SetBytes(&cost, 262144, 262144);
  cost.stages[0].egress_bytes_per_second = cost.stages[0].ingress_bytes_per_second = 0.6e6;
  const double as_ready = StepSeconds(cost);
  cost.order = SendOrder::kActivationsFirst;
  EXPECT_GT(StepSeconds(cost), 1.3 * as_ready);
}

TEST(SimulatorTest, ActivationsFirstNeedsDepth) {
  PipelineCost cost = Uniform(4, 16, 1, 1);
  cost.order = SendOrder::kActivationsFirst;
  cost.stages[2].depth = 15;
  EXPECT_EQ(Simulate(cost).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SimulatorTest, LatencyCountsInArrivalAndWayOut) {
  PipelineCost cost = Uniform(2, 1, 1, 1);
  cost.boundaries[0].forward_latency = absl::Seconds(0.125);
  cost.boundaries[0].backward_latency = absl::Seconds(0.375);
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
  PipelineCost negative = Uniform(1, 1, -1, 1);
  EXPECT_EQ(Simulate(negative).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::schedule
