// Microbatches in slices, as a plan has them; the steady-state floor of a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/auto_keys.h"
#include "planner/memory.h"
#include "planner/pipeline_cost.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Four stages whose links are what a step waits for.
PlanRequest SlowLinks() {
  PlanRequest request = Request(4);
  SetLines(&request, 10e6);
  return request;
}

double ShareOfFloor(const Plan& plan) {
  return plan.prediction.floor_seconds / plan.prediction.step_seconds;
}

TEST(Floor, IsWhatTheBusiestInterfaceCarries) {
  const auto plan = MakePlan(SlowLinks());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Prediction& prediction = plan->prediction;
  // A stage in the middle sends an activation down and a gradient up for each of 16 microbatches.
  const uint64_t bytes = 16 * 2 * WithChunkHeaders(plan->assignment.edges[0].forward.bytes);
  EXPECT_EQ(prediction.busiest, "egress of stage 1");
  EXPECT_EQ(prediction.busiest_bytes, bytes);
  EXPECT_NEAR(prediction.floor_seconds, static_cast<double>(bytes) * 8 / 10e6, 1e-6);
  EXPECT_LT(prediction.floor_seconds, prediction.lower_bound_seconds);
  EXPECT_THAT(plan->explanation,
              AllOf(HasSubstr("are fill and drain, in which the pipeline runs full and empty"),
                    HasSubstr("the egress of stage 1 is at work and carries")));
}

TEST(Floor, ComputesWhereLinksCostNothing) {
  const auto plan = MakePlan(Request(2));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.busiest.substr(0, 7), "compute");
  EXPECT_EQ(plan->prediction.busiest_bytes, 0u);
  EXPECT_NEAR(plan->prediction.floor_seconds, 16 * 4 * 0.03, 0.01);
}

TEST(Slices, ShortenFillAndDrainAndLeaveTheFloor) {
  PlanRequest request = SlowLinks();
  const auto whole = MakePlan(request);
  ASSERT_TRUE(whole.ok()) << whole.status();
  request.spec.pipeline.slices = 4;
  const auto cut = MakePlan(request);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(whole->assignment.slices, 1u);
  EXPECT_EQ(cut->assignment.slices, 4u);
  const auto cost = PipelineCostOf(*cut, request.spec, NetworkOf(*cut));
  EXPECT_EQ(cost.slices, 4u);
  EXPECT_EQ(cost.stages[0].forward, absl::Milliseconds(5));  // of 2 layers, 20 ms
  EXPECT_NEAR(cut->prediction.floor_seconds, whole->prediction.floor_seconds,
              0.01 * whole->prediction.floor_seconds);
  EXPECT_LT(cut->prediction.step_seconds, 0.94 * whole->prediction.step_seconds);
  EXPECT_GT(ShareOfFloor(*cut), 0.95);
  EXPECT_LT(ShareOfFloor(*whole), 0.90);
}

// The sum of what its slices carry, each a blob of its own.
TEST(Slices, BytesOfAMicrobatchAreThoseOfItsSlices) {
  PlanRequest request = SlowLinks();
  request.spec.links.codecs = {"tah", "fixed:bits=6"};
  const auto whole = MakePlan(request);
  request.spec.pipeline.slices = 4;
  const auto cut = MakePlan(request);
  ASSERT_TRUE(whole.ok() && cut.ok());
  const Flow &of_whole = whole->assignment.edges[0].forward,
             &of_cut = cut->assignment.edges[0].forward;
  EXPECT_GE(of_cut.bytes, of_whole.bytes);  // more headers
  EXPECT_LE(of_cut.bytes, of_whole.bytes + of_whole.bytes / 50);
  EXPECT_EQ(of_cut.bytes % 4, 0u);
}

TEST(Slices, AutoTakesTheFewestNearTheFastestStep) {
  PlanRequest request = SlowLinks();
  request.spec.pipeline.slices.reset();
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<SlicesPrediction>& tried = plan->prediction.slices;
  ASSERT_EQ(tried.size(), 3u);  // slices of 256 tokens, 128 and 64
  EXPECT_EQ(plan->assignment.slices, 4u);
  for (size_t i = 0; i < tried.size(); ++i) EXPECT_EQ(tried[i].slices, 1u << i);
  EXPECT_GT(tried[0].step_seconds, 1.05 * tried[2].step_seconds);
  EXPECT_DOUBLE_EQ(tried[2].step_seconds, plan->prediction.step_seconds);
  EXPECT_THAT(plan->explanation, HasSubstr("pipeline.slices is auto: 4 slices, the fewest within "
                                           "1% of the fastest step; microbatches whole would"));
  const auto spec = ParseRunSpec(plan->assignment.run_yaml, "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->pipeline.slices, 4u);
}

TEST(Slices, AutoLeavesMicrobatchesWholeWhereThatIsAsFast) {
  PlanRequest request = Request(1);
  request.spec.pipeline.slices.reset();
  const auto alone = MakePlan(request);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->assignment.slices, 1u);

  request = SlowLinks();
  request.spec.pipeline.slices.reset();
  request.spec.train.microbatches = 400;  // of which filling takes next to nothing
  const auto many = MakePlan(request);
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_EQ(many->assignment.slices, 1u);
}

TEST(Overlap, LeavesTheFloorAlone) {
  PlanRequest request = SlowLinks();
  const auto whole = MakePlan(request);
  request.spec.pipeline.schedule = ScheduleKind::kTwoVersions;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(whole.ok() && plan.ok()) << plan.status();
  const Prediction& prediction = plan->prediction;
  EXPECT_DOUBLE_EQ(prediction.floor_seconds, whole->prediction.floor_seconds);
  EXPECT_DOUBLE_EQ(prediction.floor_seconds, prediction.lower_bound_seconds);
  EXPECT_GT(ShareOfFloor(*plan), 0.98);
  EXPECT_LT(ShareOfFloor(*whole), 0.90);
  for (const Cell& cell : plan->assignment.cells) EXPECT_EQ(cell.setting.activation_lead, 0u);
  EXPECT_THAT(plan->explanation, HasSubstr("Steps overlap (pipeline.schedule: 2bw)"));
}

// The stage's twin has parameters and gradients of its own, and a snapshot both parameters.
TEST(Overlap, TakesMemoryForTwoVersions) {
  RunSpec spec = Request(2).spec;
  const StageMemory one = MemoryOf(spec, 256, 2, true, false, false);
  const uint64_t state = StageStateBytes(spec, 256, 2, true, false);
  spec.pipeline.schedule = ScheduleKind::kTwoVersions;
  const uint64_t parameters = StageParameters(spec.model, 256, 2, true, false) * sizeof(float);
  EXPECT_EQ(StageStateBytes(spec, 256, 2, true, false), state + parameters);
  const StageMemory two = MemoryOf(spec, 256, 2, true, false, false);
  EXPECT_GE(two.fixed, one.fixed + 3 * parameters);
  EXPECT_EQ(two.per_flight, one.per_flight);
  // A GPU has recorded passes of both.
  const StageMemory recorded = MemoryOf(spec, 256, 2, true, false, true);
  spec.pipeline.schedule = ScheduleKind::kLinkAware;
  EXPECT_EQ(recorded.per_flight, 2 * MemoryOf(spec, 256, 2, true, false, true).per_flight);
}

// What is kept for later slices grows with their number.
TEST(Slices, TakeMemory) {
  RunSpec spec = SlowLinks().spec;
  const auto per_flight = [&](uint32_t slices) {
    spec.pipeline.slices = slices;
    return MemoryOf(spec, 256, 2, /*first=*/false, /*last=*/false, /*on_gpu=*/false).per_flight;
  };
  EXPECT_LT(per_flight(1), per_flight(2));
  EXPECT_LT(per_flight(2), per_flight(8));
}

}  // namespace
}  // namespace longhaul::coordinator
