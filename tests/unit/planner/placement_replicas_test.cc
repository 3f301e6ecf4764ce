// Placement of several replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "planner/placement.h"
#include "tests/unit/planner/random_placement.h"

namespace longhaul::coordinator {
namespace {

// A layer has 200 KB to exchange, embedding and head as much more; so an exchange and the passes
// take about as long as each other.
PlacementProblem RandomReplicas(const Sizes& sizes, uint32_t replicas, uint64_t seed) {
  PlacementProblem problem = RandomProblem(sizes, seed);
  problem.replicas = replicas;
  problem.exchange.every = seed % 4 == 0 ? 5 : 1;
  problem.exchange.messages = seed % 3 == 0 ? 6 : 4;
  for (size_t role = 0; role < kChainRoles; ++role) {
    const double ends = static_cast<ChainRole>(role) == ChainRole::kMiddle ? 0 : 200e3;
    for (uint32_t layers = 1; layers <= sizes.layers; ++layers) {
      problem.exchange.bytes[role].push_back(layers * 200e3 + ends);
    }
  }
  // Another pair that may hold no stage together.
  const uint32_t a = static_cast<uint32_t>(seed) % sizes.workers, b = (a + 2) % sizes.workers;
  problem.pairs[a * sizes.workers + b].may_exchange = false;
  problem.pairs[b * sizes.workers + a].may_exchange = false;
  return problem;
}

// As placement.h says it, stage by stage and pair by pair; infinite where a pair may not exchange.
double ExchangeBySelf(const PlacementProblem& problem, const PlacedReplicas& replicas) {
  double longest = 0, latency = 0;
  for (uint32_t s = 0; s < problem.stages; ++s) {
    const double bytes =
        problem.exchange
            .bytes[static_cast<size_t>(RoleAt(s, problem.stages))][replicas[0].layers[s] - 1];
    for (const PlacedChain& from : replicas) {
      const PlaceableWorker& sender = problem.workers[from.workers[s]];
      const double all = bytes * (problem.replicas - 1);
      longest = std::max(
          {longest, all / sender.egress_bytes_per_second, all / sender.ingress_bytes_per_second});
      for (const PlacedChain& to : replicas) {
        if (&from == &to) continue;
        const PairCost& pair = problem.Pair(from.workers[s], to.workers[s]);
        if (!pair.may_exchange) return std::numeric_limits<double>::infinity();
        const PlaceableWorker& receiver = problem.workers[to.workers[s]];
        longest = std::max(longest,
                           bytes / std::min({pair.bytes_per_second, sender.egress_bytes_per_second,
                                             receiver.ingress_bytes_per_second}));
        latency = std::max(latency, pair.latency);
      }
    }
  }
  return (longest + problem.exchange.messages * latency) / problem.exchange.every;
}

// The passes of the slowest one by itself and the exchange.
double StepBySelf(const PlacementProblem& problem, const PlacedReplicas& replicas) {
  double slowest = 0;
  PlacementProblem alone = problem;
  alone.replicas = 1;
  for (const PlacedChain& chain : replicas) {
    if (!CanBe(problem, chain)) return std::numeric_limits<double>::infinity();
    slowest = std::max(slowest, SimulatedStep(alone, {chain}).value());
  }
  return slowest + ExchangeBySelf(problem, replicas);
}

PlacedReplicas CutIntoReplicas(const PlacementProblem& problem, const std::vector<uint32_t>& order,
                               const std::vector<uint32_t>& layers) {
  PlacedReplicas replicas;
  for (uint32_t r = 0; r < problem.replicas; ++r) {
    const auto first = order.begin() + r * problem.stages;
    replicas.push_back({{first, first + problem.stages}, layers});
  }
  return replicas;
}

// The shortest step of all ways to place, each tried.
double BestOfAll(const PlacementProblem& problem) {
  double best = std::numeric_limits<double>::infinity();
  const uint32_t cells = problem.stages * problem.replicas;
  std::vector<uint32_t> order(problem.workers.size()), layers;
  std::iota(order.begin(), order.end(), 0);
  do {
    // Each choice of the first ones once, and replicas in one order.
    if (!std::is_sorted(order.begin() + cells, order.end())) continue;
    bool in_order = true;
    for (uint32_t r = 1; r < problem.replicas; ++r) {
      in_order &= order[(r - 1) * problem.stages] < order[r * problem.stages];
    }
    if (!in_order) continue;
    EachSplit(problem.stages, problem.layers, &layers, [&] {
      best = std::min(best, StepBySelf(problem, CutIntoReplicas(problem, order, layers)));
    });
  } while (std::ranges::next_permutation(order).found);
  return best;
}

// Workers once, layers alike.
void ExpectWholePlacement(const PlacementProblem& problem, const PlacedReplicas& replicas) {
  ASSERT_EQ(replicas.size(), problem.replicas);
  std::set<uint32_t> workers;
  for (const PlacedChain& chain : replicas) {
    EXPECT_EQ(chain.workers.size(), problem.stages);
    EXPECT_EQ(chain.layers, replicas.front().layers);
    workers.insert(chain.workers.begin(), chain.workers.end());
  }
  EXPECT_EQ(workers.size(), size_t{problem.replicas} * problem.stages);
  EXPECT_EQ(std::reduce(replicas.front().layers.begin(), replicas.front().layers.end()),
            problem.layers);
}

// The exact search begins no row of workers that the remaining names cannot fill.
TEST(PlacementOfReplicas, AlmostAsManyAsWorkersAreChosenOneByOne) {
  const PlacementProblem problem = RandomReplicas({22, 1, 4, 5}, 20, 1);
  const auto best = Place(problem, {.most_moves = 1});
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_TRUE(best->is_exact);
  EXPECT_LT(best->moves, 10'000u);  // of 231 placements; 4 million rows of workers are shorter
  double shortest = std::numeric_limits<double>::infinity();
  for (uint32_t one = 0; one < 22; ++one) {
    for (uint32_t other = 0; other < one; ++other) {
      PlacedReplicas all;
      for (uint32_t w = 0; w < 22; ++w) {
        if (w != one && w != other) all.push_back({{w}, {4}});
      }
      shortest = std::min(shortest, StepBySelf(problem, all));
    }
  }
  EXPECT_NEAR(best->step_seconds, shortest, 1e-9);
}

TEST(PlacementOfReplicas, TheBoundIsNeverAboveTheSimulation) {
  uint32_t possible = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const uint32_t replicas = 2 + static_cast<uint32_t>(seed % 2);
    const PlacementProblem problem = RandomReplicas({8, 2, 6, 5}, replicas, seed);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 10; ++i) {
      std::vector<uint32_t> order(problem.workers.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::shuffle(order, random);
      const PlacedReplicas placed = CutIntoReplicas(problem, order, {3, 3});
      const double step = StepBySelf(problem, placed), bound = BoundOf(problem, placed);
      ASSERT_EQ(bound < std::numeric_limits<double>::infinity(),
                step < std::numeric_limits<double>::infinity());
      if (!(step < std::numeric_limits<double>::infinity())) continue;
      EXPECT_LE(bound, step + 1e-6);
      EXPECT_GT(bound, step / 2);
      EXPECT_NEAR(SimulatedStep(problem, placed).value(), step, 1e-9);
      ++possible;
    }
  }
  EXPECT_GT(possible, 60u);
}

TEST(PlacementOfReplicas, SmallProblemsAreSolvedAsByTryingAll) {
  struct Case {
    uint32_t workers, replicas, stages;
  };
  for (const Case& one : {Case{5, 2, 2}, Case{6, 2, 3}, Case{6, 3, 2}, Case{6, 4, 1}}) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      const PlacementProblem problem =
          RandomReplicas({one.workers, one.stages, 5, 4}, one.replicas, seed);
      const auto placed = Place(problem);
      const double best = BestOfAll(problem);
      if (!placed.ok()) {
        EXPECT_FALSE(best < std::numeric_limits<double>::infinity()) << placed.status();
        continue;
      }
      EXPECT_TRUE(placed->is_exact);
      ExpectWholePlacement(problem, placed->replicas);
      EXPECT_NEAR(placed->step_seconds, best, 1e-9) << one.replicas << " seed " << seed;
      EXPECT_NEAR(StepBySelf(problem, placed->replicas), placed->step_seconds, 1e-9);
    }
  }
}

TEST(PlacementOfReplicas, LocalSearchAloneComesNearTheBest) {
  double worst = 1;
  int equal = 0;
  constexpr int kProblems = 12;
  for (uint64_t seed = 1; seed <= kProblems; ++seed) {
    const uint32_t replicas = 2 + static_cast<uint32_t>(seed % 2);
    const PlacementProblem problem = RandomReplicas({7, 6 / replicas, 6, 5}, replicas, seed);
    const auto exact = Place(problem, {.most_work = 400'000'000, .exact_up_to = 1e9});
    const auto searched = Place(problem, {.exact_up_to = 0});
    ASSERT_TRUE(exact.ok() && searched.ok()) << exact.status() << searched.status();
    EXPECT_TRUE(exact->is_exact);
    EXPECT_FALSE(searched->is_exact);
    ExpectWholePlacement(problem, searched->replicas);
    const double ratio = searched->step_seconds / exact->step_seconds;
    EXPECT_GE(ratio, 1 - 1e-9);
    worst = std::max(worst, ratio);
    equal += ratio < 1 + 1e-9 ? 1 : 0;
  }
  EXPECT_LE(worst, 1.06);  // the bound ranks what is simulated
  EXPECT_GE(equal, kProblems / 2);
}

TEST(PlacementOfReplicas, IsNeverWorseThanTheOrderOfNames) {
  uint32_t compared = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const PlacementProblem problem = RandomReplicas({14, 4, 12, 4}, 3, seed);
    const auto named = NameOrder(problem);
    const auto placed = Place(problem, {.seed = seed, .most_moves = 1, .most_work = 1});
    if (!named || BoundOf(problem, *named) == std::numeric_limits<double>::infinity()) continue;
    ASSERT_TRUE(placed.ok()) << placed.status();
    EXPECT_LE(placed->step_seconds, SimulatedStep(problem, *named).value());
    ++compared;
  }
  EXPECT_GT(compared, 3u);
}

TEST(PlacementOfReplicas, TheSameSeedPlacesAlike) {
  const PlacementProblem problem = RandomReplicas({20, 4, 16, 4}, 4, 5);
  const PlacementOptions options{.seed = 3, .most_moves = 400'000};
  const auto one = Place(problem, options), other = Place(problem, options);
  ASSERT_TRUE(one.ok() && other.ok()) << one.status();
  ExpectWholePlacement(problem, one->replicas);
  EXPECT_EQ(one->replicas, other->replicas);
  EXPECT_EQ(one->moves, other->moves);
  // A descent ends where it is when the budget does.
  EXPECT_LE(one->moves, 220'000u);
}

// Two regions of two workers. What replicas exchange, or what neighbours do, is to stay inside one.
TEST(PlacementOfReplicas, WhatIsMoreStaysInsideARegion) {
  PlacementProblem problem = RandomReplicas({4, 2, 4, 8}, 2, 1);
  problem.exchange.every = 1;
  for (PlaceableWorker& worker : problem.workers) worker = problem.workers[0];
  const auto near = [](uint32_t a, uint32_t b) { return a % 2 == b % 2; };
  for (uint32_t from = 0; from < 4; ++from) {
    for (uint32_t to = 0; to < 4; ++to) {
      problem.pairs[from * 4 + to] = {.bytes_per_second = near(from, to) ? 100e6 : 1e6,
                                      .latency = near(from, to) ? 1e-3 : 20e-3};
    }
  }
  const auto scale = [&problem](double factor) {
    for (std::vector<double>& role : problem.exchange.bytes) {
      for (double& bytes : role) bytes *= factor;
    }
  };
  scale(10);
  const auto much = Place(problem);
  ASSERT_TRUE(much.ok()) << much.status();
  for (uint32_t s = 0; s < 2; ++s) {
    EXPECT_TRUE(near(much->replicas[0].workers[s], much->replicas[1].workers[s]));
  }
  scale(1e-3);
  const auto little = Place(problem);
  ASSERT_TRUE(little.ok()) << little.status();
  for (const PlacedChain& chain : little->replicas) {
    EXPECT_TRUE(near(chain.workers[0], chain.workers[1]));
  }
}

TEST(PlacementOfReplicas, SaysWhatIsImpossible) {
  PlacementProblem problem = RandomReplicas({6, 2, 4, 4}, 2, 2);
  for (PairCost& pair : problem.pairs) pair.may_exchange = false;
  EXPECT_EQ(Place(problem).status().code(), absl::StatusCode::kFailedPrecondition);
  problem.replicas = 4;
  EXPECT_EQ(Place(problem).status().code(), absl::StatusCode::kInvalidArgument);
  problem.replicas = 2;
  problem.exchange.bytes = {};
  EXPECT_EQ(Place(problem).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::coordinator
