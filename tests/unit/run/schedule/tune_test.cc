#include "run/schedule/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>

#include "run/plan/chain.h"

namespace longhaul::schedule {
namespace {

using ::testing::HasSubstr;

PipelineCost Pipeline(uint32_t stages, uint32_t microbatches, double bytes_per_second) {
  PipelineCost cost;
  cost.microbatches = microbatches;
  cost.stages.assign(stages, {.forward = absl::Seconds(0.01),
                              .backward = absl::Seconds(0.02),
                              .egress_bytes_per_second = bytes_per_second,
                              .ingress_bytes_per_second = bytes_per_second,
                              .depth = microbatches});
  cost.boundaries.assign(chain::Boundaries(stages),
                         {.forward = {.bytes = 100'000}, .backward = {.bytes = 100'000}});
  return cost;
}

PipelineCost With(PipelineCost cost, const Tuning& tuning) {
  for (size_t s = 0; s < cost.stages.size(); ++s) {
    cost.stages[s].depth = tuning.depths[s];
    cost.stages[s].activation_lead = tuning.leads[s];
  }
  return cost;
}

TEST(Tune, FastLinksNeedNoMoreThanTheStagesBehind) {
  const PipelineCost cost = Pipeline(4, 16, 1e12);
  const auto tuning = Tune(cost, {});
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_EQ(tuning->depths, (std::vector<uint32_t>{4, 3, 2, 1}));
  EXPECT_NEAR(absl::ToDoubleSeconds(tuning->unlimited), (16 + 3) * 0.03, 1e-4);
  EXPECT_LE(tuning->step, tuning->unlimited * 1.01);
}

TEST(Tune, SlowLinksReachTheBoundByALead) {
  const PipelineCost cost = Pipeline(6, 24, 1e6);
  const auto tuning = Tune(cost, {});
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  const auto simulation = Simulate(With(cost, *tuning));
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_EQ(simulation->step, tuning->step);
  EXPECT_LE(simulation->step, 1.012 * simulation->lower_bound);
  EXPECT_LT(tuning->unlimited, tuning->as_ready);
}

TEST(Tune, StaysWithinWhatEachStageHolds) {
  PipelineCost cost = Pipeline(5, 24, 1e6);
  cost.stages[1].depth = 3;
  cost.stages[3].depth = 7;
  const auto tuning = Tune(cost, {});
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_LE(tuning->depths[1], 3u);
  EXPECT_LE(tuning->depths[3], 7u);
  EXPECT_LE(tuning->leads[2], 3u);
  EXPECT_LE(tuning->leads[4], 3u);
  EXPECT_GT(tuning->limited, tuning->unlimited * 1.01) << "three in flight starve these links";
  EXPECT_LE(tuning->step, tuning->limited);
}

TEST(Tune, ASlowFirstStageGetsNoLongLead) {
  PipelineCost cost = Pipeline(8, 32, 1.2e6);
  cost.stages[0].egress_bytes_per_second = cost.stages[0].ingress_bytes_per_second = 0.6e6;
  const auto tuning = Tune(cost, {.depths = false});
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_LT(tuning->leads[1], 16u);
  EXPECT_EQ(tuning->depths[0], 32u);
}

TEST(Tune, TakesTheLeadThatItIsGiven) {
  PipelineCost cost = Pipeline(4, 16, 1e6);
  cost.stages[1].depth = 5;
  const auto tuning = Tune(cost, {.depths = false, .lead = 15});
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_EQ(tuning->leads, (std::vector<uint32_t>{0, 15, 5, 5}));
  EXPECT_EQ(Tune(cost, {.depths = false, .lead = 0})->leads, (std::vector<uint32_t>{0, 0, 0, 0}));
}

TEST(Tune, OneStageAndOneMicrobatch) {
  EXPECT_EQ(Tune(Pipeline(1, 8, 1e6), {})->depths, (std::vector<uint32_t>{1}));
  const auto tuning = Tune(Pipeline(3, 1, 1e6), {});
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_EQ(tuning->depths, (std::vector<uint32_t>{1, 1, 1}));
}

TEST(Tune, LargePipelinesAreSearchedCoarselyAndSaySo) {
  const auto small = Tune(Pipeline(8, 64, 1e6), {}), large = Tune(Pipeline(8, 400, 1e6), {}),
             long_one = Tune(Pipeline(24, 32, 1e6), {});
  ASSERT_TRUE(small.ok() && large.ok() && long_one.ok());
  EXPECT_LT(large->simulations, small->simulations);
  EXPECT_LT(long_one->simulations, small->simulations) << "each takes longer, too";
  EXPECT_EQ(small->cut_short, "");
  EXPECT_THAT(long_one->cut_short, HasSubstr("depths of 24 stages were searched coarsely"));
}

TEST(Tune, ASpentBudgetLeavesTheBestSoFar) {
  const PipelineCost cost = Pipeline(8, 64, 1e6);
  const uint64_t one = WorkOf(cost);
  EXPECT_EQ(one, 64u * 8 * 8);
  const auto whole = Tune(cost, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  uint32_t before = 0;
  for (const uint32_t simulations : {4u, 40u, whole->simulations / 2}) {
    const auto cut = Tune(cost, {.most_work = simulations * one});
    ASSERT_TRUE(cut.ok()) << cut.status();
    // Two opinions on the first lead, and the step without one, whatever they take.
    EXPECT_LE(cut->simulations, simulations + 1);
    EXPECT_GT(cut->simulations, before);
    before = cut->simulations;
    EXPECT_THAT(cut->cut_short, HasSubstr("because a search has a budget of"));
    const auto simulation = Simulate(With(cost, *cut));
    ASSERT_TRUE(simulation.ok()) << simulation.status();
    EXPECT_EQ(simulation->step, cut->step) << "what it says of the depths that it gives";
    EXPECT_LE(cut->step, cut->unlimited * 1.02);
  }
  // Enough is no limit.
  const auto enough = Tune(cost, {.most_work = (whole->simulations + 2) * one});
  ASSERT_TRUE(enough.ok()) << enough.status();
  EXPECT_EQ(enough->depths, whole->depths);
  EXPECT_EQ(enough->cut_short, "");
}

TEST(Tune, APipelineOf64StagesHasDepths) {
  const PipelineCost cost = Pipeline(64, 16, 1e7);
  const auto tuning = TuneWithMargin(cost, {.most_work = 20 * WorkOf(cost)});
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_LE(tuning->simulations, 3u * 20);
  EXPECT_THAT(tuning->cut_short, HasSubstr("64 stages"));
  EXPECT_LE(tuning->step, tuning->limited * 1.02);
}

TEST(Tune, IsStopped) {
  std::stop_source stop;
  stop.request_stop();
  const TuneOptions options{.stop = stop.get_token()};
  const PipelineCost cost = Pipeline(4, 16, 1e6);
  EXPECT_EQ(Tune(cost, options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(TuneWithMargin(cost, options).status().code(), absl::StatusCode::kCancelled);
}

TEST(Tune, RefusesWhatTheSimulatorRefuses) {
  EXPECT_EQ(Tune({}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::schedule
