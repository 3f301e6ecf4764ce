// Searches that run out of time end with the best that they have found.
#include "run/schedule/search_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "planner/placement.h"
#include "planner/planner.h"
#include "planner/retune.h"
#include "tests/unit/planner/plan_request.h"
#include "tests/unit/planner/random_placement.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

// Searches in full prefer simpler choices to ones that are faster by little: fewer microbatches in
// flight, fewer slices or replicas, finer codecs. So a plan of a shorter search may be faster by
// these tolerances.
constexpr double kTolerances = 0.05;

// Over when a search has asked so many times.
schedule::SearchLimit After(uint64_t looks) {
  return {[looks, asked = uint64_t{0}]() mutable { return asked++ >= looks; }, "after a test"};
}

TEST(SearchLimit, StaysOverForAllCopies) {
  bool is_over = false;
  const schedule::SearchLimit limit([&] { return is_over; }, "after 5 s");
  const schedule::SearchLimit copy = limit;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_FALSE(copy.IsOver());
  EXPECT_EQ(limit.Words(), "");
  is_over = true;
  EXPECT_FALSE(limit.HasEndedSearches()) << "no search has asked since";
  EXPECT_TRUE(copy.IsOver());
  is_over = false;
  EXPECT_TRUE(limit.IsOver());
  copy.Count(1);
  EXPECT_EQ(limit.Words(),
            "the search ended after 5 s, and took the best of 1 plan that it had looked at");
  EXPECT_FALSE(schedule::SearchLimit().IsOver());
  EXPECT_EQ(schedule::SearchLimit().Words(), "");
}

TEST(SearchLimit, APlacementIsPossibleAndNoBetterThanTheBest) {
  uint32_t cut = 0, worse = 0;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    const PlacementProblem problem =
        RandomProblem({6, 2 + static_cast<uint32_t>(seed % 3), 8, 4}, seed);
    const auto best = Place(problem);
    ASSERT_TRUE(best.ok()) << best.status();
    ASSERT_TRUE(best->is_exact);
    const auto named = NameOrder(problem);
    const double by_name = named && CanBe(problem, named->front())
                               ? SimulatedStep(problem, *named).value()
                               : std::numeric_limits<double>::infinity();
    for (const uint64_t looks : {0, 1, 3, 10, 100, 100'000'000}) {
      const schedule::SearchLimit limit = After(looks);
      const auto placed = Place(problem, {.limit = limit});
      ASSERT_TRUE(placed.ok()) << placed.status();
      ASSERT_TRUE(CanBe(problem, placed->replicas.front())) << "seed " << seed;
      EXPECT_NEAR(SimulatedStep(problem, placed->replicas).value(), placed->step_seconds, 1e-12);
      EXPECT_GE(placed->step_seconds, best->step_seconds - 1e-12) << "seed " << seed;
      EXPECT_LE(placed->step_seconds, by_name) << "seed " << seed;
      cut += limit.HasEndedSearches();
      worse += placed->step_seconds > best->step_seconds * 1.001;
      if (limit.HasEndedSearches()) continue;
      EXPECT_EQ(placed->replicas, best->replicas);
      EXPECT_TRUE(placed->is_exact);
    }
  }
  EXPECT_GT(cut, 40u);
  EXPECT_GT(worse, 5u) << "no search was long enough to be cut";
}

// Workers with unequal lines, and all choices left to the plan.
PlanRequest AllOpen(uint64_t seed) {
  Random random(seed);
  PlanRequest request = Request(5);
  request.spec.model.layers = 5;
  request.spec.train.microbatches = 8;
  request.spec.pipeline.slices.reset();
  request.spec.links.codecs = {"auto", "auto"};
  request.spec.replicas.count_auto = true;
  request.candidates_for = 5;
  for (CandidateWorker& from : request.workers) {
    from.times.set_block_forward(0.01 * random.Between(1, 3));
    for (const CandidateWorker& to : request.workers) {
      if (from.id == to.id) continue;
      from.to[to.id] = {.bits_per_second = random.Between(5e6, 5e8),
                        .latency = absl::Milliseconds(random.Between(1, 40))};
    }
  }
  return request;
}

TEST(SearchLimit, APlanIsValidAndSaysThatItsSearchEnded) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    PlanRequest request = AllOpen(seed);
    const auto whole = MakePlan(request);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(whole->prediction.cut_short, "");
    for (const uint64_t looks : {0, 1, 5, 50, 500, 100'000'000}) {
      request.limit = After(looks);
      const auto plan = MakePlan(request);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(CheckAssignment(plan->assignment), absl::OkStatus());
      const auto spec = ParseRunSpec(plan->assignment.run_yaml, "plan", {});
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_GT(plan->prediction.step_seconds, 0);
      EXPECT_GE(plan->prediction.step_seconds, whole->prediction.step_seconds * (1 - kTolerances))
          << "seed " << seed << ", " << looks << " looks";
      if (request.limit.HasEndedSearches()) {
        EXPECT_EQ(plan->prediction.cut_short, request.limit.Words());
        EXPECT_THAT(plan->explanation, HasSubstr(" More was not tried: the search ended after a "
                                                 "test, and took the best of "));
      } else {
        EXPECT_EQ(plan->explanation, whole->explanation);
        EXPECT_EQ(plan->prediction.step_seconds, whole->prediction.step_seconds);
        EXPECT_EQ(looks, 100'000'000u);
      }
    }
  }
}

TEST(SearchLimit, AKeyThatIsAutoGetsTheFirstPossibleValue) {
  PlanRequest request = AllOpen(1);
  request.limit = After(0);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.replicas.size(), 1u);
  EXPECT_EQ(plan->prediction.slices.size(), 1u);
  for (const char* key : {"pipeline.replicas is auto: 1 of 5 stages",
                          "pipeline.slices is auto: microbatches whole"}) {
    EXPECT_THAT(plan->explanation,
                HasSubstr(std::string(key) + "; there was no time to look at others."));
  }
}

TEST(SearchLimit, ARunThatCannotBeIsRefusedAllTheSame) {
  PlanRequest request = AllOpen(1);
  for (CandidateWorker& worker : request.workers) worker.memory_bytes = 1000;
  const auto whole = MakePlan(request);
  request.limit = After(0);
  EXPECT_EQ(MakePlan(request).status(), whole.status());
  EXPECT_EQ(whole.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SearchLimit, ARetunedPlanSaysIt) {
  PlanRequest request = Request(3);
  SetLines(&request, 1e8);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Seen seen;
  for (const CellEstimate& cell : plan->cells) {
    seen.cells.push_back({cell.forward_seconds, cell.backward_seconds, cell.optimizer_seconds});
  }
  seen.edges.assign(plan->assignment.edges.size(), {1e9, 1e9, 0.3});
  Plan shallow = *plan;
  for (Cell& cell : shallow.assignment.cells) {
    cell.setting.depth = 1;
    cell.setting.activation_lead = 0;
  }
  const auto whole = Retune(request.spec, shallow, seen);
  ASSERT_TRUE(whole.ok() && *whole) << whole.status();
  EXPECT_EQ((*whole)->prediction.cut_short, "");
  const schedule::SearchLimit limit = After(0);
  const auto cut = Retune(request.spec, shallow, seen, {}, limit);
  ASSERT_TRUE(cut.ok() && *cut) << cut.status();
  EXPECT_EQ((*cut)->prediction.cut_short, limit.Words());
  EXPECT_GE((*cut)->prediction.step_seconds, (*whole)->prediction.step_seconds * (1 - kTolerances));
}

}  // namespace
}  // namespace longhaul::coordinator
