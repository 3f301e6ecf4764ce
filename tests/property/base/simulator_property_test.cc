// Properties of the simulator and the bound over random instances.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/schedule/simulator.h"

namespace longhaul::schedule {
namespace {

PipelineCost RandomCost(std::mt19937_64& random) {
  const auto pick = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  PipelineCost cost;
  cost.microbatches = std::uniform_int_distribution<uint32_t>(1, 24)(random);
  const auto stages = std::uniform_int_distribution<uint32_t>(1, 6)(random);
  for (uint32_t s = 0; s < stages; ++s) {
    cost.stages.push_back(
        {.forward = absl::Seconds(pick(0, 1)),
         .backward = absl::Seconds(pick(0, 2)),
         .optimizer = absl::Seconds(pick(0, 0.2)),
         .egress_bytes_per_second = pick(50, 500),
         .ingress_bytes_per_second = pick(50, 500),
         .depth = std::uniform_int_distribution<uint32_t>(1, cost.microbatches)(random)});
  }
  for (uint32_t b = 0; b + 1 < stages; ++b) {
    cost.boundaries.push_back(
        {.forward_bytes = pick(0, 300),
         .backward_bytes = pick(0, 300),
         .forward_bytes_per_second = pick(0, 1) < 0.5 ? kUnlimited : pick(30, 300),
         .backward_bytes_per_second = pick(0, 1) < 0.5 ? kUnlimited : pick(30, 300),
         .forward_latency = absl::Seconds(pick(0, 0.1)),
         .backward_latency = absl::Seconds(pick(0, 0.1)),
         .forward_encode = absl::Seconds(pick(0, 0.05)),
         .forward_decode = absl::Seconds(pick(0, 0.05)),
         .backward_encode = absl::Seconds(pick(0, 0.05)),
         .backward_decode = absl::Seconds(pick(0, 0.05))});
  }
  return cost;
}

TEST(SimulatorPropertyTest, NeverFasterThanTheBoundAndNeverStuck) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) {
    PipelineCost cost = RandomCost(random);
    for (const ScheduleKind kind :
         {ScheduleKind::kLinkAware, ScheduleKind::kOneFOneB, ScheduleKind::kGpipe}) {
      cost.schedule = kind;
      const auto result = Simulate(cost);
      ASSERT_TRUE(result.ok()) << "instance " << i << ": " << result.status();
      EXPECT_GE(result->step, 0.999999 * result->lower_bound) << "instance " << i;
      for (const StageUse& use : result->stages) {
        EXPECT_LE(use.compute_share, 1 + 1e-9);
        EXPECT_LE(use.egress_share, 1 + 1e-9);
        EXPECT_LE(use.ingress_share, 1 + 1e-9);
      }
    }
  }
}

TEST(SimulatorPropertyTest, IsDeterministic) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 50; ++i) {
    const PipelineCost cost = RandomCost(random);
    EXPECT_EQ(Simulate(cost)->step, Simulate(cost)->step);
  }
}

}  // namespace
}  // namespace longhaul::schedule
