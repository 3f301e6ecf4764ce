// What plans say of their runs' time, and of what networks.
#include "planner/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/pipeline_cost.h"
#include "run/schedule/simulator.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MakePlan, SaysWhereAStagesTimeGoes) {
  PlanRequest request = Request(3);
  SetLines(&request, 2e7);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->prediction.cells.size(), 3u);
  ASSERT_EQ(plan->prediction.edges.size(), 2u);
  for (const PredictedCell& cell : plan->prediction.cells) {
    EXPECT_NEAR(cell.compute_seconds + cell.codec_seconds + cell.wait_above_seconds +
                    cell.wait_below_seconds + cell.optimizer_seconds,
                plan->prediction.step_seconds, 1e-6);
  }
  EXPECT_GT(plan->prediction.cells[1].egress_share, 0.5);
}

TEST(MakePlan, PredictsOtherCodecsWhenAsked) {
  PlanRequest request = Request(3);
  SetLines(&request, 1e7);
  EXPECT_EQ(MakePlan(request)->prediction.codecs.size(), 0u);
  request.with_codec_table = true;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> names;
  for (const auto& row : plan->prediction.codecs) names.push_back(row.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"none (this run)", "bf16", "default", "fast", "paper"}));
  const CodecPrediction &own = plan->prediction.codecs[0], &bf16 = plan->prediction.codecs[1];
  EXPECT_EQ(own.step_seconds, plan->prediction.step_seconds);
  EXPECT_TRUE(own.codec_times_known);
  EXPECT_FALSE(bf16.codec_times_known);
  EXPECT_NEAR(own.step_seconds / bf16.step_seconds, 2, 0.1);
  EXPECT_NEAR(bf16.tokens_per_second * bf16.step_seconds, 16 * 256, 1e-6);
  // Each row is what planning with these codecs gives, with its depths at the most.
  PlanRequest other = request;
  other.spec.links.codecs = {"bf16", "bf16"};
  EXPECT_NEAR(MakePlan(other)->prediction.step_seconds, bf16.step_seconds,
              0.02 * bf16.step_seconds);
  request.spec.links.codecs = {"fp16", "none"};
  plan = MakePlan(request);
  ASSERT_EQ(plan->prediction.codecs.size(), 6u);
  EXPECT_EQ(plan->prediction.codecs[5].name, "this run");
  EXPECT_EQ(plan->prediction.codecs[5].forward_codec, "fp16");
  request = Request(1);
  request.with_codec_table = true;
  EXPECT_EQ(MakePlan(request)->prediction.codecs.size(), 0u) << "no links";
}

TEST(MakePlan, SlowInterfacesAreTheBottleneck) {
  PlanRequest request = Request(3);
  for (CandidateWorker& worker : request.workers) {
    worker.egress_bits_per_second = worker.ingress_bits_per_second = 10e6;
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  // The middle stage sends 16 activations and 16 gradients of 256 KiB.
  EXPECT_GT(plan->prediction.lower_bound_seconds, 32 * 262144 * 8 / 10e6);
  EXPECT_THAT(plan->prediction.bottleneck, HasSubstr("of stage 1"));
  EXPECT_THAT(plan->explanation, Not(HasSubstr("unlimited")));
  EXPECT_EQ(plan->cells[0].egress_bits_per_second, 10e6);
}

TEST(MakePlan, WhatWasMeasuredBetweenWorkersCounts) {
  PlanRequest request = Request(3);
  request.workers[1].to[WorkerId("id2")] = {.bits_per_second = 1e6,
                                            .latency = absl::Milliseconds(20)};
  request.workers[2].to[WorkerId("id1")] = {.bits_per_second = 4e6};
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.edges[0].forward.bits_per_second, 0);
  EXPECT_EQ(plan->assignment.edges[1].forward.bits_per_second, 1e6);
  EXPECT_EQ(plan->assignment.edges[1].backward.bits_per_second, 4e6);
  EXPECT_EQ(plan->assignment.edges[1].forward.latency_seconds, 0.02);
  EXPECT_EQ(plan->cells[0].egress_bits_per_second, 0);
  EXPECT_EQ(plan->cells[1].egress_bits_per_second, 1e6);
  EXPECT_EQ(plan->cells[1].ingress_bits_per_second, 4e6);
  EXPECT_GT(plan->prediction.step_seconds,
            16 * 8 * static_cast<double>(plan->assignment.edges[1].forward.bytes) / 1e6);
  // What is known of an interface counts before what its links did alone.
  request.workers[1].egress_bits_per_second = request.workers[2].ingress_bits_per_second = 7e6;
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->cells[1].egress_bits_per_second, 7e6);
  EXPECT_THAT(plan->prediction.bottleneck, HasSubstr("link from stage 1 to stage 2"));
}

TEST(MakePlan, ATopologyCountsWhereNothingWasMeasured) {
  PlanRequest request = Request(4);
  TopologySpec& topology = request.spec.topology.emplace();
  topology.regions = {{"west", {"w0", "w1"}}, {"east", {"w2", "w3"}}};
  topology.links = {{"east", "west", 10'000'000, {.delay = absl::Milliseconds(40)}},
                    {"west", "west", 100'000'000, {}}};
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NEAR(plan->assignment.edges[0].backward.bits_per_second, 95.6e6, 1e5);
  EXPECT_NEAR(plan->assignment.edges[1].forward.bits_per_second, 9.56e6, 1e4);
  EXPECT_EQ(plan->assignment.edges[1].backward.latency_seconds, 0.04);
  EXPECT_EQ(plan->assignment.edges[2].forward.bits_per_second, 0) << "nothing is said of the east";
  request.workers[1].to[WorkerId("id2")] = {.bits_per_second = 5e6,
                                            .latency = absl::Milliseconds(41)};
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.edges[1].forward.bits_per_second, 5e6);
  EXPECT_EQ(plan->assignment.edges[1].forward.latency_seconds, 0.041);
  EXPECT_EQ(plan->assignment.edges[1].backward.latency_seconds, 0.04);
}

TEST(MakePlan, WhatIsAssumedReplacesWhatWasMeasured) {
  PlanRequest request = Request(3);
  request.workers[1].egress_bits_per_second = 5;
  request.workers[1].to[WorkerId("id2")] = {.bits_per_second = 1e6,
                                            .latency = absl::Milliseconds(20)};
  request.assumed_line_bits_per_second = 100'000'000;
  auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const CellEstimate& cell : plan->cells) {
    EXPECT_NEAR(cell.egress_bits_per_second, 95.6e6, 0.1e6);
  }
  EXPECT_EQ(plan->assignment.edges[1].forward.bits_per_second, 0);
  EXPECT_EQ(plan->assignment.edges[1].forward.latency_seconds, 0.02);
  request.assumed_delay = absl::Milliseconds(5);
  plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.edges[1].forward.latency_seconds, 0.005);
  EXPECT_EQ(plan->assignment.edges[0].backward.latency_seconds, 0.005);
}

TEST(MakePlan, PredictsWhatTheSimulatorSays) {
  PlanRequest request = Request(3);
  for (CandidateWorker& worker : request.workers) {
    worker.egress_bits_per_second = worker.ingress_bits_per_second = 2e7;
  }
  request.workers[0].to[WorkerId("id1")] = {.bits_per_second = 1e7,
                                            .latency = absl::Milliseconds(30)};
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto same = schedule::Simulate(PipelineCostOf(*plan, request.spec, NetworkOf(*plan)));
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(absl::ToDoubleSeconds(same->step), plan->prediction.step_seconds);
  const auto slower = schedule::Simulate(PipelineCostOf(
      *plan, request.spec, UniformNetwork(plan->assignment, 1e5, absl::Milliseconds(1))));
  ASSERT_TRUE(slower.ok()) << slower.status();
  EXPECT_GT(slower->lower_bound, 10 * same->step);
}

}  // namespace
}  // namespace longhaul::coordinator
