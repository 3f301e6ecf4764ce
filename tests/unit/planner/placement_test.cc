#include "planner/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <stop_token>

#include "tests/unit/planner/random_placement.h"

namespace longhaul::coordinator {
namespace {

// The shortest simulated step of all chains, each tried.
double Oracle(const PlacementProblem& problem) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<uint32_t> order(problem.workers.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    // Each choice of the first ones once.
    if (!std::is_sorted(order.begin() + problem.stages, order.end())) continue;
    PlacedChain chain{{order.begin(), order.begin() + problem.stages}, {}};
    EachSplit(problem.stages, problem.layers, &chain.layers, [&] {
      if (CanBe(problem, chain)) best = std::min(best, SimulatedStep(problem, {chain}).value());
    });
  } while (std::ranges::next_permutation(order).found);
  return best;
}

PlacedChain RandomChain(const PlacementProblem& problem, Random& random) {
  std::vector<uint32_t> workers(problem.workers.size());
  std::iota(workers.begin(), workers.end(), 0);
  for (uint32_t s = 0; s < problem.stages; ++s) {
    std::swap(workers[s], workers[s + random.Below(static_cast<uint32_t>(workers.size()) - s)]);
  }
  workers.resize(problem.stages);
  PlacedChain chain{workers, std::vector<uint32_t>(problem.stages, 1)};
  for (uint32_t left = problem.layers - problem.stages; left > 0; --left) {
    ++chain.layers[random.Below(problem.stages)];
  }
  return chain;
}

TEST(Placement, TheBoundIsNeverAboveTheSimulation) {
  uint32_t tried = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const PlacementProblem problem =
        RandomProblem({6, 2 + static_cast<uint32_t>(seed % 4), 9, 6}, seed);
    Random random(seed);
    for (int i = 0; i < 10; ++i) {
      const PlacedChain chain = RandomChain(problem, random);
      const double bound = BoundOf(problem, {chain});
      EXPECT_EQ(bound < std::numeric_limits<double>::infinity(), CanBe(problem, chain));
      if (!CanBe(problem, chain)) continue;
      const double step = SimulatedStep(problem, {chain}).value();
      EXPECT_LE(bound, step + 1e-6) << "seed " << seed;
      EXPECT_GT(bound, step / 2) << "seed " << seed;
      ++tried;
    }
  }
  EXPECT_GT(tried, 200u);
}

TEST(Placement, SmallProblemsAreSolvedAsByTryingAllChains) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const uint32_t stages = 1 + static_cast<uint32_t>(seed % 4);
    const PlacementProblem problem = RandomProblem({5, stages, 6, 4}, seed);
    const auto placed = Place(problem);
    ASSERT_TRUE(placed.ok()) << placed.status();
    EXPECT_TRUE(placed->is_exact);
    EXPECT_NEAR(placed->step_seconds, Oracle(problem), 1e-9) << "seed " << seed;
    EXPECT_NEAR(SimulatedStep(problem, placed->replicas).value(), placed->step_seconds, 1e-12);
  }
}

TEST(Placement, LocalSearchAloneComesNearTheBestChain) {
  double worst = 1;
  int equal = 0;
  constexpr int kProblems = 20;
  for (uint64_t seed = 1; seed <= kProblems; ++seed) {
    const PlacementProblem problem = RandomProblem({7, 4, 9, 6}, seed);
    const auto exact = Place(problem);
    const auto searched = Place(problem, {.exact_up_to = 0});
    ASSERT_TRUE(exact.ok() && searched.ok()) << exact.status() << searched.status();
    EXPECT_FALSE(searched->is_exact);
    const double ratio = searched->step_seconds / exact->step_seconds;
    EXPECT_GE(ratio, 1 - 1e-9);
    worst = std::max(worst, ratio);
    equal += ratio < 1 + 1e-9 ? 1 : 0;
  }
  EXPECT_LE(worst, 1.03);
  EXPECT_GE(equal, kProblems / 2);
}

TEST(Placement, IsNeverWorseThanTheOrderOfNames) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const PlacementProblem problem = RandomProblem({12, 8, 20, 4}, seed);
    const auto placed = Place(problem, {.seed = seed, .most_moves = 1, .most_work = 1});
    ASSERT_TRUE(placed.ok()) << placed.status();
    const auto named = NameOrder(problem);
    if (!named || !CanBe(problem, named->front())) continue;
    EXPECT_LE(placed->step_seconds, SimulatedStep(problem, *named).value());
  }
}

TEST(Placement, TheSameSeedPlacesAlikeAndSaysHowFarItIs) {
  const PlacementProblem problem = RandomProblem({16, 10, 24, 4}, 5);
  double share = 0;
  uint32_t calls = 0;
  PlacementOptions options{.seed = 3, .most_moves = 300'000};
  options.progress = [&](double now, double step_seconds) {
    EXPECT_GE(now, share);
    EXPECT_LE(now, 1);
    EXPECT_GT(step_seconds, 0);
    share = now;
    ++calls;
  };
  const auto one = Place(problem, options);
  options.progress = {};
  const auto other = Place(problem, options);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->replicas, other->replicas);
  EXPECT_EQ(one->moves, other->moves);
  EXPECT_GT(calls, 2u);
}

TEST(Placement, IsGivenUpWhileItSearches) {
  const PlacementProblem problem = RandomProblem({16, 10, 24, 4}, 5);
  std::stop_source stop;
  uint32_t calls = 0;
  PlacementOptions options{.stop = stop.get_token()};
  options.progress = [&](double /*share*/, double /*step_seconds*/) {
    if (++calls == 2) stop.request_stop();
  };
  EXPECT_EQ(Place(problem, options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 2u);
}

TEST(Placement, ASlowLinkIsNotTakenAndAFastSpareIs) {
  PlacementProblem problem = RandomProblem({4, 2, 4, 8}, 1);
  for (PairCost& pair : problem.pairs) pair = {.bytes_per_second = 1e6, .latency = 0.05};
  for (PlaceableWorker& worker : problem.workers) {
    worker = problem.workers[0];
    worker.egress_bytes_per_second = worker.ingress_bytes_per_second = 100e6;
  }
  for (const auto& [a, b] : {std::pair(1, 3), std::pair(3, 1)}) {
    problem.pairs[static_cast<size_t>(a) * 4 + static_cast<size_t>(b)] = {.bytes_per_second = 100e6,
                                                                          .latency = 1e-3};
  }
  const auto placed = Place(problem);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_THAT(placed->replicas.front().workers, ::testing::UnorderedElementsAre(1, 3));
}

TEST(Placement, SaysWhenNoChainIsPossible) {
  PlacementProblem problem = RandomProblem({4, 3, 6, 4}, 2);
  for (PairCost& pair : problem.pairs) pair.may_be_joined = false;
  EXPECT_EQ(Place(problem).status().code(), absl::StatusCode::kFailedPrecondition);
  problem.layers = 2;
  EXPECT_EQ(Place(problem).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::coordinator
