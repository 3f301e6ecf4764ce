#include "deploy/sweep/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/plan/chain.h"

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;

RunSpec Spec() {
  RunSpec spec;
  spec.model.context = 100;
  spec.model.hidden = 64;
  spec.train.microbatches = 4;
  spec.train.steps = 6;
  spec.pipeline.stages = 2;
  spec.links.codecs = {"none", "none"};
  return spec;
}

Plan TwoStages() {
  Plan plan;
  for (uint32_t stage = 0; stage < 2; ++stage) {
    plan.assignment.cells.push_back({.id = {.stage = stage},
                                     .worker_name = "worker" + std::to_string(stage + 1),
                                     .layers = {stage, 1},
                                     .setting = {.depth = 4}});
    plan.cells.push_back({.forward_seconds = 0.001, .backward_seconds = 0.002});
  }
  plan.assignment.edges = chain::MakeEdges(1, 2);
  plan.assignment.edges[0].forward.bytes = plan.assignment.edges[0].backward.bytes = 25'000;
  plan.edges.resize(1);
  return plan;
}

TEST(PredictPoint, TakesTheLinksOfThePoint) {
  const auto result = PredictPoint(TwoStages(), Spec(), 10'000'000, absl::Milliseconds(25));
  ASSERT_TRUE(result.ok()) << result.status();
  // Four activations of 21 ms each, two delays of 25 ms, the last gradient.
  EXPECT_GT(result->bound_seconds, 4 * 0.021 + 2 * 0.025);
  EXPECT_GE(result->simulated_seconds, result->bound_seconds);
  EXPECT_LT(result->simulated_seconds, 0.3);
  EXPECT_THAT(result->bottleneck, HasSubstr("of stage"));
}

// What replicas send each other follows from their parameters, behind the passes: less than 500 KB
// each way, and four latencies.
TEST(PredictPoint, AStepOfReplicasHasTheirExchange) {
  const Plan alone = TwoStages();
  Plan plan = alone;
  for (uint32_t stage = 0; stage < 2; ++stage) {
    Cell cell = alone.assignment.cells[stage];
    cell.id.replica = 1;
    cell.worker_name = "worker" + std::to_string(stage + 3);
    plan.assignment.cells.push_back(cell);
    plan.cells.push_back(alone.cells[stage]);
  }
  plan.assignment.edges = chain::MakeEdges(2, 2);
  for (Edge& edge : plan.assignment.edges) {
    edge.forward.bytes = edge.backward.bytes = 25'000;
  }
  plan.edges.resize(plan.assignment.edges.size());
  RunSpec spec = Spec();
  const auto one = PredictPoint(alone, spec, 10'000'000, absl::Milliseconds(25));
  spec.replicas.count = 2;
  const auto two = PredictPoint(plan, spec, 10'000'000, absl::Milliseconds(25));
  ASSERT_TRUE(one.ok() && two.ok()) << two.status();
  const double exchange = two->simulated_seconds - one->simulated_seconds;
  EXPECT_GT(exchange, 4 * 0.025 + 0.1);
  EXPECT_LT(exchange, 4 * 0.025 + 500'000 / (10e6 / 8 * 0.956));
  EXPECT_GT(two->bound_seconds, one->bound_seconds + 0.8 * exchange);
  EXPECT_LE(two->bound_seconds, two->simulated_seconds);
  EXPECT_GT(two->floor_seconds, one->floor_seconds + 0.8 * (exchange - 0.1));
}

TEST(NetworkSeconds, IsWhatTheBusiestInterfaceNeeds) {
  RunSpec spec = Spec();
  const double two = NetworkSeconds(spec, 10'000'000);
  EXPECT_NEAR(two, 4 * 25'600 / (10e6 / 8 * 0.956), 0.002);
  spec.pipeline.stages = 4;
  EXPECT_NEAR(NetworkSeconds(spec, 10'000'000), 2 * two, 1e-9);
  EXPECT_EQ(NetworkSeconds(spec, 0), 0);
  spec.pipeline.stages = 1;
  EXPECT_EQ(NetworkSeconds(spec, 10'000'000), 0);
}

}  // namespace
}  // namespace longhaul::cli
