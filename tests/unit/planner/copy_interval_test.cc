// How often stages copy their state: as asked, or as their lines leave room.
#include "planner/copy_interval.h"

#include <gmock/gmock.h>

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

// Two stages of a step of one second; `used` of each line of 10 Mbit/s.
Plan PlanWith(double used) {
  Plan plan;
  plan.assignment.data.vocabulary = 256;
  for (uint32_t stage = 0; stage < 2; ++stage) {
    Cell& cell = plan.assignment.cells.emplace_back();
    cell.id.stage = stage;
    cell.layers = {.first = stage, .count = 1};
    cell.roles = {.embedding = stage == 0, .head = stage == 1};
    plan.cells.push_back({.egress_bits_per_second = 10e6});
    plan.prediction.cells.push_back({.egress_share = used});
  }
  plan.prediction.step_seconds = 1;
  return plan;
}

RunSpec Spec(std::optional<uint32_t> every) {
  RunSpec spec;
  spec.model.layers = 2;
  spec.model.hidden = 192;
  spec.model.heads = 6;
  spec.model.context = 256;
  spec.recovery.every = every;
  return spec;
}

TEST(CopyInterval, IsWhatTheRunFileSays) {
  EXPECT_EQ(CopyIntervalOf(Spec(0), PlanWith(0.5)).steps, 0u);
  EXPECT_EQ(CopyIntervalOf(Spec(0), PlanWith(0.5)).reason, "");
  const CopyInterval interval = CopyIntervalOf(Spec(8), PlanWith(0.5));
  EXPECT_EQ(interval.steps, 8u);
  EXPECT_THAT(interval.reason, HasSubstr("every 8 steps (8 s of work at risk)"));
}

TEST(CopyInterval, FollowsTheBytesOfTheOptimizersState) {
  RunSpec spec = Spec(std::nullopt);
  const uint64_t adamw = CopyIntervalOf(spec, PlanWith(0.5)).steps;
  spec.train.optimizer.kind = OptimizerKind::kMuon;
  EXPECT_LT(CopyIntervalOf(spec, PlanWith(0.5)).steps, adamw);
}

TEST(CopyInterval, FollowsWhatTrainingLeavesOfTheLine) {
  const uint64_t idle = CopyIntervalOf(Spec(std::nullopt), PlanWith(0)).steps;
  const uint64_t half = CopyIntervalOf(Spec(std::nullopt), PlanWith(0.5)).steps;
  const uint64_t full = CopyIntervalOf(Spec(std::nullopt), PlanWith(1)).steps;
  // 5.9 MB, coded 5.1, over 10 Mbit/s take 4 s at best, and copies go half of the time.
  EXPECT_GE(idle, 8u);
  EXPECT_GE(half, 2 * idle - 2);
  EXPECT_LE(half, 2 * idle + 2);
  EXPECT_GT(full, 5 * half) << "a fiftieth of the line is theirs in any case";
}

TEST(CopyInterval, ASparesLineIsSharedByAll) {
  RunSpec spec = Spec(std::nullopt);
  const uint64_t alone = CopyIntervalOf(spec, PlanWith(0)).steps;
  spec.recovery.spares = 1;
  const CopyInterval shared = CopyIntervalOf(spec, PlanWith(0));
  EXPECT_GT(shared.steps, alone);
  EXPECT_THAT(shared.reason, HasSubstr("the line of one spare takes all stages'"));
}

}  // namespace
}  // namespace longhaul::coordinator
