#include "planner/place_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planner/link_estimates.h"
#include "planner/memory.h"
#include "tests/support/placement_candidates.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kFixtures = std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/placement/";

std::vector<std::string> NamesOf(const Plan& plan) {
  std::vector<std::string> names;
  for (const Cell& cell : plan.assignment.cells) names.push_back(cell.worker_name);
  return names;
}

// As measured, both ways.
void Measure(PlanRequest* request, size_t a, size_t b, double bits_per_second,
             absl::Duration latency) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    request->workers[from].to[request->workers[to].id] = {.bits_per_second = bits_per_second,
                                                          .latency = latency};
  }
}

// Two regions whose names alternate: all pairs are known.
PlanRequest TwoRegions(uint32_t workers) {
  PlanRequest request = Request(workers);
  request.candidates_for = workers;
  for (size_t a = 0; a < workers; ++a) {
    for (size_t b = 0; b < a; ++b) {
      const bool near = a % 2 == b % 2;
      Measure(&request, a, b, near ? 1e9 : 1e7, absl::Milliseconds(near ? 1 : 40));
    }
  }
  return request;
}

TEST(PlaceWorkers, NamesThatAlternateBetweenRegionsCrossTheOceanOnce) {
  const auto plan = MakePlan(TwoRegions(4));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(CheckAssignment(plan->assignment), absl::OkStatus());
  uint32_t slow = 0;
  for (const Edge& edge : plan->assignment.edges) slow += edge.forward.bits_per_second < 1e8;
  EXPECT_EQ(slow, 1u) << ::testing::PrintToString(NamesOf(*plan));
  EXPECT_THAT(plan->explanation, HasSubstr("in the order of their names"));
  PlanRequest named = TwoRegions(4);
  named.candidates_for.reset();
  const auto by_name = MakePlan(named);
  ASSERT_TRUE(by_name.ok());
  EXPECT_LT(plan->prediction.step_seconds, by_name->prediction.step_seconds);
}

// As `request`, as so many replicas.
PlanRequest AsReplicas(PlanRequest request, uint32_t replicas, const char* gradients) {
  request.spec.replicas = {.count = replicas,
                           .gradients = replicas::ParseGradients(gradients).value()};
  return request;
}

bool AreNear(const Edge& edge) {
  return edge.forward.bits_per_second > 1e8;
}

// Gradients are more than activations here, unless replicas train apart for long.
TEST(PlaceWorkers, ReplicasOfAStageStandNearEachOtherWhereTheyExchangeMuch) {
  PlanRequest request = TwoRegions(4);
  // In the order of names a replica would be a region.
  std::swap(request.workers[1], request.workers[2]);
  for (size_t w = 0; w < 4; ++w) request.workers[w].name = "w" + std::to_string(w);
  const auto near_edges = [](const Plan& plan, EdgeKind kind) {
    return std::ranges::count_if(plan.assignment.edges, [&](const Edge& edge) {
      return edge.kind == kind && AreNear(edge);
    });
  };
  const auto much = MakePlan(AsReplicas(request, 2, "none"));
  ASSERT_TRUE(much.ok()) << much.status();
  EXPECT_EQ(CheckAssignment(much->assignment), absl::OkStatus());
  EXPECT_EQ(near_edges(*much, EdgeKind::kReplicas), 2);
  EXPECT_EQ(near_edges(*much, EdgeKind::kActivations), 0);
  EXPECT_THAT(much->explanation, HasSubstr("in the order of their names a step would take"));
  EXPECT_THAT(much->explanation, HasSubstr("all ways considered"));
  PlanRequest named = AsReplicas(request, 2, "none");
  named.candidates_for.reset();
  const auto by_name = MakePlan(named);
  ASSERT_TRUE(by_name.ok());
  EXPECT_LT(much->prediction.step_seconds, 0.5 * by_name->prediction.step_seconds);
  const auto little = MakePlan(AsReplicas(request, 2, "local-sgd:steps=1000"));
  ASSERT_TRUE(little.ok()) << little.status();
  EXPECT_EQ(near_edges(*little, EdgeKind::kActivations), 2);
  EXPECT_THAT(NamesOf(*little), ElementsAre("w0", "w1", "w2", "w3"));
}

TEST(PlaceWorkers, ReplicasArePredictedAsTheyWereChosen) {
  for (const uint32_t replicas : {2u, 3u}) {
    PlanRequest request = AsReplicas(TwoRegions(7), replicas, "local-sgd:steps=100");
    request.candidates_for = 6;
    request.workers[2].times.set_block_forward(0.03);
    request.workers[2].times.set_block_backward(0.06);
    const auto problem = ProblemOf(request);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const auto placed = Place(*problem);
    const auto plan = MakePlan(request);
    ASSERT_TRUE(placed.ok() && plan.ok()) << placed.status() << plan.status();
    EXPECT_NEAR(plan->prediction.step_seconds, placed->step_seconds, 0.02 * placed->step_seconds);
    EXPECT_EQ(plan->assignment.cells.size(), 6u);
    // Two replicas do without the slow one. Of three each fits into a region with it.
    EXPECT_EQ(std::ranges::count(NamesOf(*plan), "w2"), replicas == 2 ? 0 : 1);
    for (const Edge& edge : plan->assignment.edges) {
      EXPECT_TRUE(edge.kind != EdgeKind::kActivations || AreNear(edge)) << ToString(edge.from);
    }
  }
}

TEST(PlaceWorkers, ReplicasThatCannotTalkDoNotHoldOneStage) {
  PlanRequest request = AsReplicas(Request(4), 2, "none");
  request.candidates_for = 4;
  for (const auto& [from, to] : {std::pair(0, 2), std::pair(2, 0)}) {
    CandidateWorker& worker = request.workers[static_cast<size_t>(from)];
    const WorkerId& other = request.workers[static_cast<size_t>(to)].id;
    worker.does_not_reach[{other, TransportKind::kUcx}] = "no route";
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const Edge& edge : plan->assignment.edges) {
    const std::set<std::string> ends = {plan->assignment.Find(edge.from)->worker_name,
                                        plan->assignment.Find(edge.to)->worker_name};
    EXPECT_NE(ends, (std::set<std::string>{"w0", "w2"}));
  }
}

// Nothing else would be left to use where so many pairs have to be joined.
TEST(PlaceWorkers, TheLastPlanOfASurveyTrustsGuessesOfReplicasLittle) {
  PlanRequest request = AsReplicas(TwoRegions(8), 2, "none");
  request.candidates_for = 8;
  request.only_measured = true;
  request.workers[0].to.at(request.workers[2].id).bits_per_second = 0;
  PlanRequest known = request;
  EstimateLinks(&known.workers);
  const auto trusted = ProblemOf(known);
  ASSERT_TRUE(trusted.ok());
  EXPECT_TRUE(trusted->Pair(0, 2).may_be_joined);
  EXPECT_DOUBLE_EQ(trusted->Pair(0, 2).bytes_per_second, 1e9 / 8 / 10);
  EXPECT_DOUBLE_EQ(trusted->Pair(0, 4).bytes_per_second, 1e9 / 8);
}

TEST(PlaceWorkers, AFastSpareWithTheLastNameIsUsed) {
  PlanRequest request = Request(3);
  request.candidates_for = 2;
  for (size_t a = 0; a < 3; ++a) {
    for (size_t b = 0; b < a; ++b) Measure(&request, a, b, 1e9, absl::Milliseconds(1));
  }
  request.workers[2].times.set_block_forward(0.002);
  request.workers[2].times.set_block_backward(0.004);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(NamesOf(*plan), ::testing::Contains("w2"));
  uint32_t of_fast = 0;
  for (const Cell& cell : plan->assignment.cells) {
    if (cell.worker_name == "w2") of_fast = cell.layers.count;
  }
  EXPECT_GE(of_fast, 6u);
}

TEST(PlaceWorkers, AlikeWorkersKeepTheOrderOfTheirNames) {
  PlanRequest request = Request(5);
  request.candidates_for = 4;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(NamesOf(*plan), ElementsAre("w0", "w1", "w2", "w3"));
  // What no measurement is good enough to tell.
  request.workers[4].times.set_block_forward(0.0099);
  const auto again = MakePlan(request);
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(NamesOf(*again), ElementsAre("w0", "w1", "w2", "w3"));
}

TEST(PlaceWorkers, APairThatCannotTalkIsNotPutSideBySide) {
  PlanRequest request = Request(3);
  request.candidates_for = 3;
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    CandidateWorker& worker = request.workers[static_cast<size_t>(from)];
    const WorkerId& other = request.workers[static_cast<size_t>(to)].id;
    worker.does_not_reach[{other, TransportKind::kUcx}] = "no route";
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(NamesOf(*plan)[1], "w2");
  request.workers.pop_back();
  request.candidates_for = 2;
  const auto none = MakePlan(request);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(none.status())), HasSubstr("no route"));
}

TEST(PlaceWorkers, WhoHasNoTimesOfTheGroupHasNoStage) {
  PlanRequest request = Groups(3, /*devices=*/2, /*ranks=*/2);
  request.candidates_for = 2;
  request.workers[0].times.mutable_groups(0)->set_refused("no memory");
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(NamesOf(*plan), ElementsAre("w1", "w2"));
}

TEST(PlaceWorkers, LayersFollowMemory) {
  PlanRequest request = TwoRegions(4);
  // Enough for one layer in the middle, and for none with embedding or head.
  const uint64_t least = MemoryOf(request.spec, 256, 1, /*first=*/false, /*last=*/false).At(1);
  request.workers[1].memory_bytes = least;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const Cell& cell : plan->assignment.cells) {
    if (cell.worker_name != "w1") continue;
    EXPECT_EQ(cell.layers.count, 1u);
    EXPECT_FALSE(cell.roles.embedding || cell.roles.head);
    EXPECT_LE(cell.memory_bytes, least);
  }
}

TEST(PlaceWorkers, SixteenWorkersInFourRegionsAvoidTheSlowPairs) {
  const PlanRequest request = TopologyRequest(kFixtures + "four_regions.yaml");
  ASSERT_EQ(request.workers.size(), 16u);
  const auto problem = ProblemOf(request);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const auto placed = Place(*problem);
  ASSERT_TRUE(placed.ok()) << placed.status();
  const double named = SimulatedStep(*problem, *NameOrder(*problem)).value();
  EXPECT_GE(named / placed->step_seconds, 2);
  // North, west, east, south, and all four workers of each in a row: the best way there is.
  std::vector<uint32_t> best;
  for (const char* region : {"north", "west", "east", "south"}) {
    for (const TopologyRegion& one : request.spec.topology->regions) {
      if (one.name != region) continue;
      for (uint32_t w = 0; w < 16; ++w) {
        if (std::ranges::count(one.workers, request.workers[w].name) > 0) best.push_back(w);
      }
    }
  }
  const auto known = WithBalancedLayers(*problem, best);
  ASSERT_TRUE(known);
  EXPECT_LE(placed->step_seconds, 1.03 * SimulatedStep(*problem, *known).value());
}

TEST(PlaceWorkers, FourReplicasInFourRegionsExchangeInsideThem) {
  PlanRequest request = AsReplicas(TopologyRequest(kFixtures + "four_regions.yaml"), 4, "sdp4bit");
  const auto problem = ProblemOf(request);
  ASSERT_TRUE(problem.ok()) << problem.status();
  ASSERT_EQ(problem->stages, 4u);
  const auto placed = Place(*problem);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_GE(SimulatedStep(*problem, *NameOrder(*problem)).value() / placed->step_seconds, 2);
  const auto region_of = [&](uint32_t worker) {
    for (const TopologyRegion& one : request.spec.topology->regions) {
      if (std::ranges::count(one.workers, request.workers[worker].name) > 0) return one.name;
    }
    return std::string();
  };
  for (uint32_t s = 0; s < 4; ++s) {
    for (const PlacedChain& chain : placed->replicas) {
      EXPECT_EQ(region_of(chain.workers[s]), region_of(placed->replicas[0].workers[s]));
    }
  }
}

TEST(PlaceWorkers, SixtyFourWorkersInTenRegionsBeatRestartsAndNames) {
  const PlanRequest request =
      MatrixRequest(kFixtures + "regions_64.csv", kFixtures + "four_regions.yaml", 32);
  const auto problem = ProblemOf(request);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const auto placed = Place(*problem);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_GE(SimulatedStep(*problem, *NameOrder(*problem)).value() / placed->step_seconds, 1.5);
  const auto restarted = Place(*problem, {.seed = 2, .random_restarts = 100});
  ASSERT_TRUE(restarted.ok());
  EXPECT_LE(placed->step_seconds, restarted->step_seconds);
}

TEST(LinkEstimates, RegionsFollowRoundTrips) {
  PlanRequest request = Request(5);
  Measure(&request, 0, 2, 0, absl::Milliseconds(1));
  Measure(&request, 2, 4, 0, absl::Milliseconds(4));
  Measure(&request, 0, 4, 0, absl::Milliseconds(7));  // by way of 2
  Measure(&request, 1, 0, 0, absl::Milliseconds(40));
  EXPECT_THAT(RegionsOf(request.workers), ElementsAre(0, 1, 0, 2, 0));
}

TEST(LinkEstimates, APairIsTakenForTheBestOfItsRegions) {
  PlanRequest request = Request(5);
  for (const auto& [a, b] : {std::pair(0, 2), std::pair(0, 4), std::pair(2, 4), std::pair(1, 3)}) {
    Measure(&request, static_cast<size_t>(a), static_cast<size_t>(b), 0, absl::Milliseconds(1));
  }
  Measure(&request, 0, 2, 1e9, absl::Milliseconds(1));
  Measure(&request, 0, 1, 3e7, absl::Milliseconds(40));
  Measure(&request, 2, 1, 2e7, absl::Milliseconds(42));
  EstimateLinks(&request.workers);
  const LinkMeasurement far = request.workers[4].to.at(WorkerId("id3"));
  EXPECT_TRUE(far.is_estimate);
  EXPECT_DOUBLE_EQ(far.bits_per_second, 3e7);
  EXPECT_GE(far.latency, absl::Milliseconds(40));
  EXPECT_LE(far.latency, absl::Milliseconds(42));
  const LinkMeasurement near = request.workers[4].to.at(WorkerId("id0"));
  EXPECT_DOUBLE_EQ(near.bits_per_second, 1e9);
  EXPECT_EQ(near.latency, absl::Milliseconds(1));
  EXPECT_FALSE(request.workers[2].to.at(WorkerId("id1")).is_estimate);
}

TEST(LinkEstimates, NothingIsMadeOfNothing) {
  PlanRequest request = Request(3);
  EstimateLinks(&request.workers);
  for (const CandidateWorker& worker : request.workers) EXPECT_TRUE(worker.to.empty());
}

TEST(LinkEstimates, TellingPairsAreNeighboursAndThenOneForEachTwoRegions) {
  PlanRequest request = TwoRegions(6);
  for (CandidateWorker& worker : request.workers) {
    for (auto& [id, link] : worker.to) link.bits_per_second = 0;
  }
  const auto pairs = TellingPairs(request.workers);
  std::set<uint32_t> near;
  uint32_t far = 0;
  for (const auto& [a, b] : pairs) {
    if (a % 2 == b % 2) {
      near.insert(a);
      near.insert(b);
    } else {
      ++far;
    }
  }
  EXPECT_EQ(near.size(), 6u);
  EXPECT_EQ(far, 1u);
  EXPECT_LE(pairs.size(), 6u);
  Measure(&request, pairs[0].first, pairs[0].second, 1e9, absl::Milliseconds(1));
  EXPECT_EQ(std::ranges::count(TellingPairs(request.workers), pairs[0]), 0);
}

}  // namespace
}  // namespace longhaul::coordinator
