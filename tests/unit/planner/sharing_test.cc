#include "planner/sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

double StepOf(const PlanRequest& request) {
  return MakePlan(request).value().prediction.step_seconds;
}

TEST(Sharing, StagesThatComputeAllTheTimeTakeTurns) {
  PlanRequest request = Request(4);
  request.spec.train.microbatches = 64;
  const double alone = StepOf(request);
  for (CandidateWorker& worker : request.workers) worker.shared_devices = {"GPU-1"};
  // One GPU has the work of four, and it is nearly never idle.
  const double work = 64 * 8 * 0.03;
  const double shared = StepOf(request);
  EXPECT_GE(shared, work);
  EXPECT_LE(shared, 1.1 * work);
  EXPECT_LT(alone, 0.3 * work);
  EXPECT_THAT(MakePlan(request)->explanation, HasSubstr("share a GPU"));
  // Two GPUs for two stages each.
  request.workers[0].shared_devices = request.workers[1].shared_devices = {"GPU-0"};
  EXPECT_NEAR(StepOf(request), work / 2, 0.1 * work);
}

TEST(Sharing, StagesThatWaitForLinksHardlyDisturbEachOther) {
  PlanRequest request = Request(4);
  SetLines(&request, 10e6);
  const double alone = StepOf(request);
  for (CandidateWorker& worker : request.workers) worker.shared_devices = {"GPU-1"};
  EXPECT_GE(StepOf(request), alone * (1 - 1e-9));
  EXPECT_LE(StepOf(request), 1.1 * alone);
}

TEST(Sharing, OthersAndReplaysAreAsBefore) {
  PlanRequest request = Request(2);
  const double alone = StepOf(request);
  request.workers[0].shared_devices = {"GPU-0"};
  request.workers[1].shared_devices = {"GPU-1"};
  EXPECT_DOUBLE_EQ(StepOf(request), alone);
  EXPECT_THAT(MakePlan(request)->explanation, Not(HasSubstr("share a GPU")));
  request.workers[1].shared_devices = {"GPU-0"};
  EXPECT_GT(StepOf(request), 1.5 * alone);
  request.spec.replay = ReplaySpec{.source = "elsewhere"};
  const double replayed = StepOf(request);
  request.workers[1].shared_devices.clear();
  EXPECT_DOUBLE_EQ(StepOf(request), replayed);
}

// Two replicas of two stages whose stages are two to a GPU have half of each, whichever share one.
TEST(Sharing, CountsTheStagesOfOtherReplicas) {
  PlanRequest request = Request(4);
  request.spec.replicas.count = 2;
  request.spec.train.microbatches = 32;
  const auto alone = MakePlan(request);
  ASSERT_TRUE(alone.ok()) << alone.status();
  const double passes = alone->prediction.step_seconds - alone->prediction.exchange_seconds;
  const auto share = [&request](size_t one, size_t other) {
    PlanRequest shared = request;
    shared.workers[one].shared_devices = shared.workers[other].shared_devices = {"GPU-0"};
    return MakePlan(shared);
  };
  const auto same_stage = share(0, 2), same_replica = share(0, 1);
  ASSERT_TRUE(same_stage.ok() && same_replica.ok());
  const auto passes_of = [](const Plan& plan) {
    return plan.prediction.step_seconds - plan.prediction.exchange_seconds;
  };
  EXPECT_NEAR(passes_of(*same_replica), 2 * passes, 0.2 * passes);
  EXPECT_NEAR(passes_of(*same_stage), 2 * passes, 0.2 * passes);
  EXPECT_THAT(same_stage->explanation, HasSubstr("share a GPU"));
  EXPECT_THAT(same_stage->explanation, HasSubstr("w0, w2"));
  EXPECT_EQ(same_stage->cells[1].forward_seconds, alone->cells[1].forward_seconds);
  EXPECT_EQ(same_stage->cells[0].forward_seconds, same_stage->cells[2].forward_seconds);
}

// Workers w0 and w1 have one GPU, w2 and w3 another.
PlanRequest TwoToAGpu() {
  PlanRequest request = Request(4);
  request.candidates_for = 2;
  request.spec.train.microbatches = 32;
  for (size_t w = 0; w < request.workers.size(); ++w) {
    request.workers[w].shared_devices = {w < 2 ? "GPU-0" : "GPU-1"};
  }
  return request;
}

TEST(Sharing, IsAvoidedWhereOtherGpusAreFree) {
  const auto plan = MakePlan(TwoToAGpu());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->explanation, Not(HasSubstr("share a GPU")));
  EXPECT_THAT(plan->explanation,
              HasSubstr("among 2 candidates, without 2 that share GPUs with these"));
  EXPECT_EQ(plan->assignment.cells[0].worker_name, "w0");
  EXPECT_EQ(plan->assignment.cells[1].worker_name, "w2");
}

TEST(Sharing, IsChosenWhereTheOtherGpuIsFarAway) {
  PlanRequest request = TwoToAGpu();
  for (CandidateWorker& from : request.workers) {
    for (CandidateWorker& to : request.workers) {
      if (from.id == to.id) continue;
      const bool near = from.shared_devices == to.shared_devices;
      from.to[to.id] = {.bits_per_second = near ? 1e10 : 1e6, .latency = absl::Milliseconds(1)};
    }
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->explanation, HasSubstr("share a GPU"));
}

TEST(Sharing, SpreadsWorkersOverGpus) {
  const PlanRequest request = TwoToAGpu();
  EXPECT_THAT(SpreadOverDevices(request.workers, 2), ElementsAre(0, 2));
  EXPECT_THAT(SpreadOverDevices(request.workers, 3), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(SpreadOverDevices(request.workers, 9), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace longhaul::coordinator
