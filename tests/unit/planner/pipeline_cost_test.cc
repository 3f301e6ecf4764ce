#include "planner/pipeline_cost.h"

#include <gtest/gtest.h>

#include "run/plan/chain.h"

namespace longhaul::coordinator {
namespace {

Plan TwoStages() {
  Plan plan;
  for (uint32_t i = 0; i < 2; ++i) {
    plan.assignment.cells.push_back({.id = {.stage = i}, .setting = {.depth = 4 + i}});
    plan.cells.push_back(
        {.forward_seconds = 0.01, .backward_seconds = 0.02, .optimizer_seconds = 0.003});
  }
  plan.assignment.edges = chain::MakeEdges(1, 2);
  plan.assignment.edges[0].forward.bytes = 1'000'000;
  plan.assignment.edges[0].backward.bytes = 500'000;
  plan.edges = {{.forward = {.encode_seconds = 0.001, .decode_seconds = 0.002},
                 .backward = {.encode_seconds = 0.003, .decode_seconds = 0.004}}};
  plan.assignment.cells[1].setting.activation_lead = 3;
  return plan;
}

RunSpec EightMicrobatches() {
  RunSpec spec;
  spec.train.microbatches = 8;
  spec.pipeline.schedule = ScheduleKind::kGpipe;
  return spec;
}

TEST(GoodputBytesPerSecond, IsWhatFullFramesLeave) {
  EXPECT_NEAR(GoodputBytesPerSecond(100'000'000), 100e6 / 8 * 0.9564, 1e3);
  EXPECT_EQ(GoodputBytesPerSecond(0), schedule::kUnlimited);
}

TEST(WithChunkHeaders, AddsOneHeaderAChunk) {
  EXPECT_EQ(WithChunkHeaders(0), 0u);
  EXPECT_EQ(WithChunkHeaders(1), 161u);
  // A frame of 64 KiB has the tensor header in it.
  constexpr uint64_t kChunk = (64 << 10) - 96;
  EXPECT_EQ(WithChunkHeaders(kChunk), kChunk + 160);
  EXPECT_EQ(WithChunkHeaders(kChunk + 1), kChunk + 1 + 320);
}

TEST(PipelineCostOf, TakesThePlanAndTheNetwork) {
  const Plan plan = TwoStages();
  NetworkRates network = UniformNetwork(plan.assignment, 2e6, absl::Milliseconds(25));
  network.interfaces[1].egress_bytes_per_second = 1e6;
  const schedule::PipelineCost cost = PipelineCostOf(plan, EightMicrobatches(), network);
  EXPECT_EQ(cost.schedule, ScheduleKind::kGpipe);
  EXPECT_EQ(cost.stages[1].activation_lead, 3u);
  EXPECT_EQ(cost.microbatches, 8u);
  ASSERT_EQ(cost.stages.size(), 2u);
  EXPECT_EQ(cost.stages[0].egress_bytes_per_second, 2e6);
  EXPECT_EQ(cost.stages[1].egress_bytes_per_second, 1e6);
  EXPECT_EQ(cost.stages[1].depth, 5u);
  EXPECT_EQ(cost.stages[0].forward, absl::Milliseconds(10));
  ASSERT_EQ(cost.boundaries.size(), 1u);
  EXPECT_EQ(cost.boundaries[0].forward.latency, absl::Milliseconds(25));
  EXPECT_EQ(cost.boundaries[0].backward.latency, absl::Milliseconds(25));
  EXPECT_EQ(cost.boundaries[0].forward.bytes, 1'000'000 + 16 * 160);
  EXPECT_EQ(cost.boundaries[0].backward.decode, absl::Milliseconds(4));
}

TEST(SetNetwork, IsReadBack) {
  Plan plan = TwoStages();
  NetworkRates network = UniformNetwork(plan.assignment, 2e6, absl::Milliseconds(25));
  network.interfaces[1].ingress_bytes_per_second = schedule::kUnlimited;
  network.links[0].backward.bytes_per_second = 1e6;
  network.links[0].backward.latency = absl::Milliseconds(1);
  SetNetwork(network, &plan);
  EXPECT_EQ(plan.cells[1].egress_bits_per_second, 16e6);
  EXPECT_EQ(plan.cells[1].ingress_bits_per_second, 0) << "nothing is known";
  const NetworkRates read = NetworkOf(plan);
  EXPECT_EQ(read.interfaces[1].ingress_bytes_per_second, schedule::kUnlimited);
  EXPECT_EQ(read.interfaces[0].ingress_bytes_per_second, 2e6);
  EXPECT_EQ(read.links[0].forward.bytes_per_second, schedule::kUnlimited);
  EXPECT_EQ(read.links[0].backward.bytes_per_second, 1e6);
  EXPECT_EQ(read.links[0].forward.latency, absl::Milliseconds(25));
  EXPECT_EQ(read.links[0].backward.latency, absl::Milliseconds(1));
}

TEST(PipelineCostOf, DelayAndRateShowInTheSimulation) {
  const auto simulate = [](double bytes_per_second, absl::Duration latency) {
    Plan plan = TwoStages();
    for (Cell& cell : plan.assignment.cells) cell.setting.depth = 8;
    const auto simulation = schedule::Simulate(PipelineCostOf(
        plan, EightMicrobatches(), UniformNetwork(plan.assignment, bytes_per_second, latency)));
    EXPECT_TRUE(simulation.ok()) << simulation.status();
    return simulation.value_or(schedule::Simulation{});
  };
  const auto free = simulate(schedule::kUnlimited, absl::ZeroDuration());
  const auto slow = simulate(1e6, absl::ZeroDuration());
  const auto far = simulate(1e6, absl::Milliseconds(100));
  EXPECT_GT(slow.step, absl::Seconds(8));  // eight activations of a second each
  EXPECT_LT(free.step, absl::Seconds(1));
  EXPECT_GE(far.lower_bound, slow.lower_bound + absl::Milliseconds(100));
  EXPECT_GE(far.step, far.lower_bound);
}

}  // namespace
}  // namespace longhaul::coordinator
