// Depths, and the order in which data leave, in plans.
#include "planner/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

std::vector<uint32_t> DepthsOf(const Plan& plan) {
  std::vector<uint32_t> depths;
  for (const Cell& cell : plan.assignment.cells) depths.push_back(cell.setting.depth);
  return depths;
}

std::vector<uint32_t> LeadsOf(const Plan& plan) {
  std::vector<uint32_t> leads;
  for (const Cell& cell : plan.assignment.cells) leads.push_back(cell.setting.activation_lead);
  return leads;
}

TEST(MakePlan, DepthFollowsScheduleAndRunFile) {
  PlanRequest request = Request(3);
  request.spec.pipeline.schedule = ScheduleKind::kOneFOneB;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->assignment.cells[0].setting.depth, 3u);
  EXPECT_EQ(plan->assignment.cells[2].setting.depth, 1u);
  request.spec.pipeline.schedule = ScheduleKind::kGpipe;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->assignment.cells[2].setting.depth, 16u);
  request.spec.pipeline.schedule = ScheduleKind::kLinkAware;
  request.spec.pipeline.depth = 4;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->assignment.cells[0].setting.depth, 4u);
}

TEST(MakePlan, ActivationsGoFirstWhereRatesAreNotKnownAndMemoryAllows) {
  PlanRequest request = Request(4);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LeadsOf(*plan), (std::vector<uint32_t>{0, 15, 15, 15}));
  EXPECT_EQ(DepthsOf(*plan), (std::vector<uint32_t>{16, 16, 16, 16}));
  EXPECT_THAT(plan->cells[0].depth_reason, HasSubstr("rates are not known"));
  EXPECT_THAT(plan->explanation, HasSubstr("15 of 16 microbatches ahead of gradients, because"));

  request.spec.pipeline.depth = 4;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LeadsOf(*plan), (std::vector<uint32_t>{0, 0, 0, 0}))
      << "gradients must leave to make room";
}

TEST(MakePlan, TheRunFilesOrderIsKept) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e6);
  request.spec.pipeline.send_order = SendOrder::kAsReady;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LeadsOf(*plan), (std::vector<uint32_t>{0, 0, 0, 0}));
  EXPECT_THAT(plan->prediction.order_reason, HasSubstr("send_order: as-ready"));
  request.spec.pipeline.send_order = SendOrder::kActivationsFirst;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LeadsOf(*plan), (std::vector<uint32_t>{0, 15, 15, 15}));
  EXPECT_EQ(DepthsOf(*plan), (std::vector<uint32_t>{16, 16, 16, 16}));
  request.spec.pipeline.depth = 4;
  EXPECT_EQ(MakePlan(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MakePlan, FastLinksNeedLittleDepth) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e12);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // 4, 3, 2, 1 would do if messages took no time at all.
  EXPECT_EQ(DepthsOf(*plan), (std::vector<uint32_t>{6, 5, 3, 1}));
  EXPECT_EQ(plan->assignment.cells[0].memory_bytes,
            StageMemoryBytes(request.spec, 256, 2, true, false, 6));
  EXPECT_EQ(plan->cells[0].depth_by_memory, 16u);
  EXPECT_THAT(plan->cells[0].depth_reason, HasSubstr("more than 1% longer"));
  EXPECT_THAT(plan->explanation, HasSubstr("have 6, 5, 3, 1 of 16 microbatches in flight"));
}

TEST(MakePlan, SlowLinksGetTheDepthThatMemoryHolds) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e7);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->assignment.cells[0].setting.depth, 8u);
  EXPECT_LE(plan->prediction.step_seconds, 1.011 * plan->prediction.lower_bound_seconds);
  request.workers[0].memory_bytes = StageMemoryBytes(request.spec, 256, 2, true, false, 3);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(plan->assignment.cells[0].setting.depth, 3u);
  EXPECT_LE(plan->assignment.cells[0].memory_bytes, request.workers[0].memory_bytes);
  EXPECT_LE(plan->assignment.cells[3].setting.activation_lead, 3u);
  EXPECT_GT(plan->prediction.step_seconds, 1.1 * plan->prediction.unlimited_depth_step_seconds);
  EXPECT_THAT(plan->explanation, HasSubstr("Memory is short: w0 holds 3 of 16 microbatches"));
}

TEST(MakePlan, GradientsLeaveAtOnceWhereTheFirstStageIsSlow) {
  PlanRequest request = Request(8);
  SetLines(&request, 1e6);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->assignment.cells[4].setting.activation_lead, 8u);
  const uint32_t alike = plan->assignment.cells[4].setting.activation_lead;
  request.workers[0].egress_bits_per_second = request.workers[0].ingress_bits_per_second = 4e5;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LT(plan->assignment.cells[4].setting.activation_lead, alike);
}

}  // namespace
}  // namespace longhaul::coordinator
