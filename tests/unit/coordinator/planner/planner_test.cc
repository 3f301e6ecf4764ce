#include "coordinator/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/registry.h"
#include "run/file/run_spec.h"
#include "tests/unit/coordinator/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<uint32_t> LayersOf(const v1::Plan& plan) {
  std::vector<uint32_t> layers;
  for (const auto& stage : plan.stages()) layers.push_back(stage.layers());
  return layers;
}

TEST(MakePlan, EqualWorkersGetEqualLayersAndFullDepth) {
  const PlanRequest request = Request(4);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{2, 2, 2, 2}));
  EXPECT_EQ(plan->run_id(), "tiny-1");
  EXPECT_EQ(plan->epoch(), 3u);
  EXPECT_EQ(plan->start_step(), 0u);
  EXPECT_EQ(plan->stages(2).first_layer(), 4u);
  for (const auto& stage : plan->stages()) {
    EXPECT_EQ(stage.depth(), 16u);
    EXPECT_EQ(stage.threads(), 1u);
    EXPECT_DOUBLE_EQ(stage.forward_seconds(), 0.02);
    EXPECT_DOUBLE_EQ(stage.backward_seconds(), 0.04);
  }
  EXPECT_EQ(plan->links_size(), 3);
  // No link costs time: 16 microbatches and the fill and drain of three other stages.
  EXPECT_NEAR(plan->prediction().step_seconds(), 0.06 * (16 + 3), 1e-6);
  EXPECT_LE(plan->prediction().lower_bound_seconds(), plan->prediction().step_seconds() + 1e-9);
  EXPECT_THAT(plan->prediction().bottleneck(), HasSubstr("compute"));
  EXPECT_THAT(plan->explanation(),
              AllOf(HasSubstr("w0 has 2 layers"), HasSubstr("count as unlimited"),
                    HasSubstr("compute of stage")));
}

TEST(MakePlan, CarriesTheWholeRunFile) {
  const PlanRequest request = Request(2);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  const auto spec = ParseRunSpec(plan->run_yaml(), "plan", {}, codec::CheckCodec);
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
  EXPECT_EQ(plan->stages(0).depth(), 1u);
  EXPECT_LE(plan->stages(0).memory_bytes(), request.workers[0].memory_bytes);
  EXPECT_THAT(
      plan->explanation(),
      AllOf(HasSubstr("Memory is short: w0 holds 1 of 16 microbatches"), HasSubstr("% of speed")));

  request.workers[0].memory_bytes = needed(4, 5);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{4, 4}));
  EXPECT_EQ(plan->stages(0).depth(), 5u);
  EXPECT_EQ(plan->stages(0).memory_bytes(), request.workers[0].memory_bytes);
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
  EXPECT_EQ(plan->stages(0).depth(), 16u);
  EXPECT_EQ(plan->stages(0).depth_by_memory(), 0u);
  EXPECT_THAT(plan->explanation(), HasSubstr("w0 does not say how much memory"));
}

TEST(MakePlan, MoreStagesThanLayersAreRefused) {
  EXPECT_EQ(MakePlan(Request(9)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakePlan(Request(0)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MakePlan, ResumeKeepsTheSplit) {
  PlanRequest request = Request(2);
  v1::CheckpointManifest manifest;
  manifest.set_step(50);
  for (const uint32_t layers : {1, 7}) {
    v1::StagePlan& stage = *manifest.add_stages();
    stage.set_layers(layers);
    stage.set_worker_id("id" + std::to_string(manifest.stages_size() - 1));
  }
  request.resume = manifest;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan), (std::vector<uint32_t>{1, 7}));
  EXPECT_EQ(plan->start_step(), 50u);
  EXPECT_THAT(plan->explanation(), HasSubstr("checkpoint of step 50"));

  // Other places, other numbers of stages, or not enough memory: balanced anew.
  std::swap(request.workers[0], request.workers[1]);
  const auto swapped = MakePlan(request);
  ASSERT_TRUE(swapped.ok()) << swapped.status();
  EXPECT_EQ(LayersOf(*swapped), LayersOf(*MakePlan(Request(2))));
  EXPECT_EQ(swapped->start_step(), 50u);
  request = Request(3);
  request.resume = manifest;
  const auto three = MakePlan(request);
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(LayersOf(*three), LayersOf(*MakePlan(Request(3))));
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
