#include "coordinator/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>

#include "codec/registry.h"
#include "run/file/run_spec.h"
#include "tests/unit/coordinator/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<uint32_t> LayersOf(const Plan& plan) {
  std::vector<uint32_t> layers;
  for (const Cell& cell : plan.assignment.cells) layers.push_back(cell.layers.count);
  return layers;
}

TEST(MakePlan, EqualWorkersGetEqualLayersAndFullDepth) {
  const PlanRequest request = Request(4);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{2, 2, 2, 2}));
  EXPECT_EQ(plan->assignment.run, RunId("tiny-1"));
  EXPECT_EQ(plan->assignment.epoch, Epoch(3));
  EXPECT_EQ(plan->assignment.start_step, 0u);
  EXPECT_EQ(plan->assignment.cells[2].layers.first, 4u);
  for (const Cell& cell : plan->assignment.cells) {
    EXPECT_EQ(cell.setting.depth, 16u);
    EXPECT_EQ(cell.setting.threads, 1u);
    EXPECT_EQ(cell.devices, (std::vector<uint32_t>{0}));
    EXPECT_EQ(cell.roles.embedding, cell.id.stage == 0);
    EXPECT_EQ(cell.roles.head, cell.id.stage == 3);
  }
  for (const CellEstimate& cell : plan->cells) {
    EXPECT_DOUBLE_EQ(cell.forward_seconds, 0.02);
    EXPECT_DOUBLE_EQ(cell.backward_seconds, 0.04);
  }
  EXPECT_EQ(CheckAssignment(plan->assignment), absl::OkStatus());
  EXPECT_EQ(plan->assignment.edges.size(), 3u);
  // No link costs time: 16 microbatches and the fill and drain of three other stages.
  EXPECT_NEAR(plan->prediction.step_seconds, 0.06 * (16 + 3), 1e-6);
  EXPECT_LE(plan->prediction.lower_bound_seconds, plan->prediction.step_seconds + 1e-9);
  EXPECT_THAT(plan->prediction.bottleneck, HasSubstr("compute"));
  EXPECT_THAT(plan->explanation,
              AllOf(HasSubstr("w0 has 2 layers"), HasSubstr("count as unlimited"),
                    HasSubstr("compute of stage")));
}

TEST(MakePlan, CarriesTheWholeRunFile) {
  const PlanRequest request = Request(2);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  const auto spec = ParseRunSpec(plan->assignment.run_yaml, "plan", {}, codec::CheckCodec);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->train.microbatches, 16u);
}

TEST(MakePlan, SlowWorkersAndHeadsGetFewerLayers) {
  PlanRequest request = Request(2);
  request.workers[1].times.set_block_forward(0.03);
  request.workers[1].times.set_block_backward(0.06);
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{6, 2}));
  request = Request(2);
  request.workers[1].times.set_head_forward(0.03);
  request.workers[1].times.set_head_backward(0.09);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{6, 2}));
}

TEST(MakePlan, MemoryMovesLayersAndLowersDepth) {
  PlanRequest request = Request(2);
  const auto needed = [&](uint32_t layers, uint32_t depth) {
    return StageMemoryBytes(request.spec, 256, layers, true, false, depth);
  };
  request.workers[0].memory_bytes = needed(3, 1) + 10;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{3, 5}));
  EXPECT_EQ(plan->assignment.cells[0].setting.depth, 1u);
  EXPECT_LE(plan->assignment.cells[0].memory_bytes, request.workers[0].memory_bytes);
  EXPECT_THAT(plan->explanation, AllOf(HasSubstr("Memory is short: w0 holds 1 of 16 microbatches"),
                                       HasSubstr("% of speed")));

  request.workers[0].memory_bytes = needed(4, 5);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{4, 4}));
  EXPECT_EQ(plan->assignment.cells[0].setting.depth, 5u);
  EXPECT_EQ(plan->assignment.cells[0].memory_bytes, request.workers[0].memory_bytes);
}

TEST(MakePlan, ASplitThatNowhereFitsIsRefusedWithNumbers) {
  PlanRequest request = Request(2);
  request.workers[1].memory_bytes = 1'000'000;
  const auto plan = MakePlan(request);
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(plan.status())),
              AllOf(HasSubstr("stage 1"), HasSubstr("worker w1 has"), HasSubstr("(1000000 bytes)"),
                    HasSubstr("recompute")));
}

TEST(MakePlan, UnknownMemoryIsSaidSo) {
  PlanRequest request = Request(2);
  request.workers[0].memory_bytes = 0;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->assignment.cells[0].setting.depth, 16u);
  EXPECT_EQ(plan->cells[0].depth_by_memory, 0u);
  EXPECT_THAT(plan->explanation, HasSubstr("w0 does not say how much memory"));
}

TEST(MakePlan, MoreStagesThanLayersAreRefused) {
  EXPECT_EQ(MakePlan(Request(9)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakePlan(Request(0)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MakePlan, ResumeKeepsTheSplit) {
  PlanRequest request = Request(2);
  const ResumePoint checkpoint{.step = 50,
                               .cells = {{.worker = WorkerId("id0"), .layers = {0, 1}},
                                         {.worker = WorkerId("id1"), .layers = {1, 7}}}};
  request.resume = checkpoint;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{1, 7}));
  EXPECT_EQ(plan->assignment.start_step, 50u);
  EXPECT_THAT(plan->explanation, HasSubstr("checkpoint of step 50"));

  // Other places, other numbers of stages, or not enough memory: balanced anew.
  std::swap(request.workers[0], request.workers[1]);
  const auto swapped = MakePlan(request);
  ASSERT_TRUE(swapped.ok()) << swapped.status();
  EXPECT_EQ(LayersOf(*swapped), LayersOf(*MakePlan(Request(2))));
  EXPECT_EQ(swapped->assignment.start_step, 50u);
  request = Request(3);
  request.resume = checkpoint;
  const auto three = MakePlan(request);
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(LayersOf(*three), LayersOf(*MakePlan(Request(3))));
}

TEST(MakePlan, IsStopped) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e7);
  std::stop_source stop;
  EXPECT_TRUE(MakePlan(request, stop.get_token()).ok());
  stop.request_stop();
  EXPECT_EQ(MakePlan(request, stop.get_token()).status().code(), absl::StatusCode::kCancelled);
}

TEST(MakePlan, SaysWhatASearchLeftOut) {
  PlanRequest request = Request(4);
  SetLines(&request, 1e7);
  EXPECT_EQ(MakePlan(request)->prediction.cut_short, "");
  request = Request(27);
  request.spec.model.layers = 27;
  SetLines(&request, 1e7);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->prediction.cut_short, HasSubstr("depths of 27 stages were searched coarsely"));
  EXPECT_THAT(plan->explanation, HasSubstr(plan->prediction.cut_short));
}

TEST(StageCount, FixedOrAuto) {
  RunSpec spec = Request(1).spec;
  EXPECT_EQ(StageCount(spec, 0), std::nullopt);
  EXPECT_EQ(StageCount(spec, 3), 3u);
  EXPECT_EQ(StageCount(spec, 30), 8u);
  spec.pipeline.stages = 4;
  EXPECT_EQ(StageCount(spec, 3), std::nullopt);
  EXPECT_EQ(StageCount(spec, 4), 4u);
  EXPECT_EQ(StageCount(spec, 9), 4u);
}

}  // namespace
}  // namespace longhaul::coordinator
