// The number of replicas where pipeline.replicas is auto.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "planner/auto_keys.h"
#include "planner/replicas.h"
#include "tests/support/placement_candidates.h"
#include "tests/unit/planner/plan_request.h"
#include "tests/unit/planner/random_placement.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Candidates whose lines carry so much; a step has 16 microbatches whatever the replicas are.
PlanRequest Open(uint32_t workers, double bits_per_second) {
  PlanRequest request = Request(workers);
  request.spec.replicas.count_auto = true;
  request.candidates_for = workers;
  SetLines(&request, bits_per_second);
  return request;
}

// The plan of a run file that names the number, for the same batch.
StatusOr<Plan> PlanWith(PlanRequest request, uint32_t replicas, uint32_t stages) {
  request.spec = request.spec.WithChosenReplicas(replicas);
  request.candidates_for = replicas * stages;
  return MakePlan(request);
}

TEST(ReplicaCount, IsOfTheFastestStepForTheSameBatch) {
  for (const double line : {2e6, 200e6, 20e9}) {
    const PlanRequest request = Open(8, line);
    const auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    // All that divide 16, and leave each replica a worker.
    const std::vector<ReplicasPrediction>& tried = plan->prediction.replicas;
    ASSERT_EQ(tried.size(), 4u) << line;
    double fastest = 1e9;
    for (const ReplicasPrediction& one : tried) {
      EXPECT_EQ(one.stages, 8 / one.replicas);
      const auto named = PlanWith(request, one.replicas, one.stages);
      ASSERT_TRUE(named.ok()) << named.status();
      const double step = named->prediction.step_seconds;
      // What was not chosen is predicted by a short search with depths that are not tuned.
      EXPECT_NEAR(one.step_seconds, step, 0.03 * step) << line << ", " << one.replicas;
      fastest = std::min(fastest, step);
    }
    EXPECT_LE(plan->prediction.step_seconds, fastest * 1.03) << line;
    const uint32_t replicas = ReplicasOf(plan->assignment);
    const auto spec = ParseRunSpec(plan->assignment.run_yaml, "plan", {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->replicas.count, replicas);
    EXPECT_FALSE(spec->replicas.count_auto);
    EXPECT_EQ(spec->MicrobatchesPerStep(), 16u);
    EXPECT_THAT(plan->explanation,
                AllOf(HasSubstr("pipeline.replicas is auto: "), HasSubstr(" would take ")));
    // It is what the run file would get that names it.
    const auto named = PlanWith(request, replicas, 8 / replicas);
    EXPECT_EQ(named->assignment.run_yaml, plan->assignment.run_yaml);
    EXPECT_EQ(named->prediction.step_seconds, plan->prediction.step_seconds);
  }
}

// Workers of three speeds in regions whose pairs have rates of their own, names at random.
PlanRequest OfRegions(uint32_t workers, uint64_t seed) {
  Random random(seed);
  PlanRequest request = Open(workers, 1e9);
  request.spec.replicas.gradients.form = replicas::GradientForm::kSdp4bit;
  request.spec.replicas.parameters = replicas::ParameterForm::kDifference4;
  const uint32_t regions = 2 + random.Below(3);
  std::vector<double> megabits, milliseconds;
  for (uint32_t pair = 0; pair < regions * regions; ++pair) {
    megabits.push_back(random.Between(5, 300));
    milliseconds.push_back(random.Between(5, 60));
  }
  std::vector<uint32_t> region_of;
  for (CandidateWorker& worker : request.workers) {
    region_of.push_back(random.Below(regions));
    const double slower = 1 + 0.5 * random.Below(3);
    worker.times.set_block_forward(0.01 * slower);
    worker.times.set_block_backward(0.02 * slower);
  }
  for (uint32_t from = 0; from < workers; ++from) {
    for (uint32_t to = 0; to < workers; ++to) {
      if (from == to) continue;
      const uint32_t one = region_of[from], other = region_of[to];
      const uint32_t pair = std::min(one, other) * regions + std::max(one, other);
      request.workers[from].to[request.workers[to].id] = {
          .bits_per_second = 1e6 * (one == other ? 900 : megabits[pair]),
          .latency = absl::Milliseconds(one == other ? 0.5 : milliseconds[pair])};
    }
  }
  return request;
}

// The fewest whose whole plan is within the tolerance of the fastest, each planned.
uint32_t BestOfAllPlans(const PlanRequest& request) {
  const auto workers = static_cast<uint32_t>(request.workers.size());
  std::vector<std::pair<uint32_t, double>> steps;
  double fastest = 1e9;
  for (uint32_t replicas = 1; replicas <= workers; ++replicas) {
    if (request.spec.train.microbatches % replicas != 0) continue;
    const uint32_t stages = std::min(workers / replicas, request.spec.model.layers);
    const auto plan = PlanWith(request, replicas, stages);
    if (!plan.ok()) continue;
    steps.emplace_back(replicas, plan->prediction.step_seconds);
    fastest = std::min(fastest, steps.back().second);
  }
  return std::ranges::find_if(
             steps, [&](const auto& one) { return one.second <= fastest * (1 + kAlikeSteps); })
      ->first;
}

TEST(ReplicaCount, IsAsIfAllWerePlanned) {
  std::vector<PlanRequest> requests = {TopologyRequest(
      std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/placement/four_regions.yaml")};
  requests.front().spec.replicas = Open(1, 1).spec.replicas;
  requests.front().spec.pipeline.stages.reset();
  for (uint64_t seed = 1; seed <= 4; ++seed) requests.push_back(OfRegions(16, seed));
  std::set<uint32_t> numbers;
  for (const PlanRequest& request : requests) {
    const auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const uint32_t replicas = ReplicasOf(plan->assignment);
    EXPECT_EQ(replicas, BestOfAllPlans(request));
    numbers.insert(replicas);
  }
  EXPECT_GE(numbers.size(), 3u);  // else the maps say nothing
}

// What would be taken counts what hides behind later steps, as the plan's own step does.
TEST(ReplicaCount, IsPredictedWithWhatHides) {
  PlanRequest request = Open(4, 200e6);
  request.spec.replicas.gradients =
      replicas::ParseGradients("local-sgd:steps=8,delay=0.75").value();
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->prediction.replicas.size(), 3u);
  for (const ReplicasPrediction& one : plan->prediction.replicas) {
    const auto named = PlanWith(request, one.replicas, one.stages);
    ASSERT_TRUE(named.ok()) << named.status();
    const double step = named->prediction.step_seconds;
    EXPECT_NEAR(one.step_seconds, step, 0.03 * step) << one.replicas;
  }
}

// Gradients of the whole model cost more than activations on slow lines, and nothing on fast ones,
// where a pipeline of fewer stages has less to fill.
TEST(ReplicaCount, GrowsWithTheLines) {
  const auto replicas = [](double line) { return ReplicasOf(MakePlan(Open(8, line))->assignment); };
  EXPECT_EQ(replicas(2e6), 1u);
  EXPECT_EQ(replicas(1e12), 8u);
}

TEST(ReplicaCount, KeepsStagesThatTheRunFileNames) {
  PlanRequest request = Open(7, 1e12);
  request.spec.pipeline.stages = 2;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // Three replicas would do, and 16 is no multiple of 3.
  ASSERT_EQ(plan->prediction.replicas.size(), 2u);
  EXPECT_EQ(ReplicasOf(plan->assignment), 2u);
  EXPECT_EQ(plan->assignment.cells.size(), 4u);
  EXPECT_THAT(plan->explanation, HasSubstr("2 of 2 stages for the 16 microbatches of a step"));
}

TEST(ReplicaCount, LeavesOutWhatDoesNotFit) {
  PlanRequest request = Open(4, 1e12);
  for (CandidateWorker& worker : request.workers) worker.memory_bytes = uint64_t{400} << 20;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->prediction.replicas.back().refused.empty());
  EXPECT_THAT(plan->explanation, HasSubstr("4 of 1 stage cannot be (stage 0"));
  EXPECT_LT(ReplicasOf(plan->assignment), 4u);
  for (CandidateWorker& worker : request.workers) worker.memory_bytes = uint64_t{1} << 20;
  const auto none = MakePlan(request);
  ASSERT_TRUE(absl::IsFailedPrecondition(none.status())) << none.status();
  EXPECT_THAT(Message(none.status()),
              AllOf(HasSubstr("pipeline.replicas is auto, and no number of replicas can be"),
                    HasSubstr("1 of 4 stages: "), HasSubstr("4 of 1 stage: ")));
}

TEST(ReplicaCount, OneWorkerIsOneReplica) {
  PlanRequest request = Open(1, 1e9);
  request.spec.replicas.gradients.form = replicas::GradientForm::kSdp4bit;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.cells.size(), 1u);
  EXPECT_THAT(plan->assignment.run_yaml, Not(HasSubstr("sdp4bit")));
  EXPECT_THAT(plan->explanation, HasSubstr("1 of 1 stage is all that there are workers for"));
}

TEST(ReplicaCount, TakesTheFirstByNameWhereTheRunFileSaysSo) {
  PlanRequest request = Open(5, 1e12);
  request.spec.pipeline.placement = PlacementKind::kNames;
  request.workers[0].times.set_block_forward(0.1);
  request.workers[0].times.set_block_backward(0.2);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.cells[0].worker_name, "w0");
  EXPECT_EQ(plan->prediction.replicas.size(), 3u);  // 1, 2 and 4
}

// Each trial leaves the other choices open, too.
TEST(ReplicaCount, IsChosenWithSlices) {
  PlanRequest request = Open(4, 10e6);
  request.spec.pipeline.slices.reset();
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->prediction.replicas.empty());
  EXPECT_FALSE(plan->prediction.slices.empty());
  EXPECT_THAT(plan->explanation, HasSubstr("pipeline.slices is auto"));
}

TEST(ReplicaCount, IsTheSameEachTime) {
  const PlanRequest request = Open(6, 50e6);
  const auto one = MakePlan(request), other = MakePlan(request);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->explanation, other->explanation);
}

}  // namespace
}  // namespace longhaul::coordinator
