// What audits cost, and how soon they name a liar.
#include "planner/audit_cost.h"

#include <gmock/gmock.h>

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

// Two stages that compute for 0.25 s of a step of 1 s, over one edge.
Plan AuditedPlan(uint64_t copy_every) {
  Plan plan;
  for (uint32_t stage = 0; stage < 2; ++stage) {
    plan.assignment.cells.emplace_back().id.stage = stage;
    plan.cells.emplace_back();
    plan.prediction.cells.push_back({.compute_seconds = 0.2, .optimizer_seconds = 0.05});
  }
  Edge& edge = plan.assignment.edges.emplace_back();
  edge.from.stage = 0;
  edge.to.stage = 1;
  edge.forward.bytes = 1000;
  edge.backward.bytes = 500;
  plan.assignment.copy_every = copy_every;
  plan.prediction.step_seconds = 1;
  return plan;
}

RunSpec AuditedSpec(double share) {
  RunSpec spec;
  spec.train.steps = 10'000;
  spec.train.microbatches = 4;
  spec.checkpoint.every = 100;
  spec.recovery.spares = 1;
  spec.audit.share = share;
  return spec;
}

TEST(AuditCost, IsNothingWithoutAudits) {
  EXPECT_EQ(AuditCostOf(AuditedSpec(0), AuditedPlan(5)).named_steps, 0u);
  EXPECT_EQ(AuditText(AuditedSpec(0), AuditedPlan(5)), "");
}

TEST(AuditCost, FollowsFromTheShareAndTheWindow) {
  const AuditCost cost = AuditCostOf(AuditedSpec(0.02), AuditedPlan(5));
  EXPECT_EQ(cost.window_steps, 5u);
  // 0.98^149 is 0.0493, and 0.98^148 is 0.0503.
  EXPECT_EQ(cost.named_steps, 5u * 149u);
  EXPECT_DOUBLE_EQ(cost.spare_share, 0.02 * 0.5);
  EXPECT_EQ(cost.recorded_bytes, 1000u * 4 * 5);  // stage 1 receives most
  EXPECT_EQ(AuditCostOf(AuditedSpec(0.02), AuditedPlan(0)).window_steps, 100u);
  EXPECT_EQ(AuditCostOf(AuditedSpec(1), AuditedPlan(5)).named_steps, 5u);
}

TEST(AuditCost, SaysWhenSparesAreTooFewAndWhatGpusNeed) {
  EXPECT_THAT(AuditText(AuditedSpec(0.02), AuditedPlan(5)),
              HasSubstr("is named within 745 steps with a probability of 95%"));
  Plan plan = AuditedPlan(5);
  plan.prediction.step_seconds = 0.1;
  EXPECT_THAT(AuditText(AuditedSpec(1), plan), HasSubstr("raise recovery.spares"));
  plan.cells[0].device_kind = "cuda";
  EXPECT_THAT(AuditText(AuditedSpec(0.02), plan), HasSubstr("train.deterministic: true"));
  RunSpec spec = AuditedSpec(0.02);
  spec.train.deterministic = true;
  EXPECT_EQ(AuditText(spec, plan).find("deterministic"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::coordinator
