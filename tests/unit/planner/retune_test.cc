// Depths and order that follow what was seen of a running pipeline.
#include "planner/retune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "planner/pipeline_cost.h"
#include "run/plan/chain.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr double kLine = 1e9;

class Retuning : public ::testing::Test {
 protected:
  // A plan of three stages over lines of 1 Gbit/s.
  void MakeThePlan(absl::Duration latency) {
    PlanRequest request = Request(3);
    spec_ = request.spec;
    for (size_t w = 0; w < 3; ++w) {
      for (const size_t peer : {w - 1, w + 1}) {
        if (peer < 3) request.workers[w].to[request.workers[peer].id] = {kLine, latency};
      }
    }
    auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
  }
  // As planned: what the simulator has tensors arrive at, and the planned times.
  Seen AsPlanned() const {
    const schedule::PipelineCost cost = PipelineCostOf(plan_, spec_, NetworkOf(plan_));
    const auto simulation = schedule::Simulate(cost);
    EXPECT_TRUE(simulation.ok());
    const double step = absl::ToDoubleSeconds(simulation->step);
    Seen seen;
    for (const CellEstimate& cell : plan_.cells) {
      seen.cells.push_back({cell.forward_seconds, cell.backward_seconds, cell.optimizer_seconds});
    }
    for (size_t b = 0; b < cost.boundaries.size(); ++b) {
      const auto rate = [&](double bytes, double share) {
        return 8 * bytes * cost.microbatches / (share * step);
      };
      const schedule::BoundaryUse& use = simulation->boundaries[b];
      seen.edges.push_back({rate(cost.boundaries[b].forward.bytes, use.forward.busy_share),
                            rate(cost.boundaries[b].backward.bytes, use.backward.busy_share),
                            2 * absl::ToDoubleSeconds(cost.boundaries[b].forward.latency)});
    }
    return seen;
  }
  double SimulatedStep(const Plan& plan) const {
    const auto simulation = schedule::Simulate(PipelineCostOf(plan, spec_, NetworkOf(plan)));
    return simulation.ok() ? absl::ToDoubleSeconds(simulation->step) : 0;
  }
  std::optional<Plan> Better(const Seen& seen) const {
    auto better = Retune(spec_, plan_, seen);
    EXPECT_TRUE(better.ok()) << better.status();
    return better.ok() ? *std::move(better) : std::nullopt;
  }

  RunSpec spec_;
  Plan plan_;
};

TEST_F(Retuning, WhatIsAsPlannedStays) {
  MakeThePlan(absl::Milliseconds(1));
  EXPECT_EQ(Better(AsPlanned()), std::nullopt);
}

TEST_F(Retuning, ALongerWayNeedsMoreInFlight) {
  MakeThePlan(absl::Milliseconds(1));
  ASSERT_LT(plan_.assignment.cells[1].setting.depth, 16u);
  Seen seen = AsPlanned();
  for (SeenEdge& edge : seen.edges) edge.round_trip_seconds = 0.4;
  const auto better = Better(seen);
  ASSERT_TRUE(better);
  EXPECT_GT(better->assignment.cells[0].setting.depth, plan_.assignment.cells[0].setting.depth);
  EXPECT_GT(better->assignment.cells[1].setting.depth, plan_.assignment.cells[1].setting.depth);
  EXPECT_DOUBLE_EQ(better->assignment.edges[0].forward.latency_seconds, 0.2);
  EXPECT_EQ(better->retunes, 1u);
  EXPECT_THAT(better->retune_reason,
              HasSubstr("a round trip between w0 and w1 takes 400 ms where 2 ms were planned"));
  EXPECT_EQ(better->assignment.cells[0].memory_bytes - plan_.assignment.cells[0].memory_bytes,
            (better->assignment.cells[0].setting.depth - plan_.assignment.cells[0].setting.depth) *
                plan_.cells[0].memory_per_flight_bytes);
  // The prediction is of the plan as it is now.
  EXPECT_DOUBLE_EQ(better->prediction.step_seconds, SimulatedStep(*better));
  Plan as_it_was = *better;
  for (size_t s = 0; s < 3; ++s) {
    as_it_was.assignment.cells[s].setting = plan_.assignment.cells[s].setting;
  }
  EXPECT_LT(better->prediction.step_seconds, 0.95 * SimulatedStep(as_it_was));
}

TEST_F(Retuning, NoDeeperThanMemoryHolds) {
  MakeThePlan(absl::Milliseconds(1));
  Seen seen = AsPlanned();
  for (SeenEdge& edge : seen.edges) edge.round_trip_seconds = 0.4;
  ASSERT_LT(plan_.assignment.cells[0].setting.depth, 15u);
  const uint32_t most = plan_.assignment.cells[0].setting.depth + 1;
  plan_.cells[0].depth_by_memory = most;
  const auto better = Better(seen);
  ASSERT_TRUE(better);
  EXPECT_EQ(better->assignment.cells[0].setting.depth, most);
}

TEST_F(Retuning, AnInterfaceThatBecomesSlowerIsFoundByItsLinks) {
  MakeThePlan(absl::Milliseconds(20));
  for (Cell& cell : plan_.assignment.cells) cell.setting = {.depth = 1, .activation_lead = 0};
  // The first worker's uplink alone.
  Seen slow = AsPlanned();
  slow.edges[0].forward_bits_per_second = *slow.edges[0].forward_bits_per_second / 10;
  const auto better = Better(slow);
  ASSERT_TRUE(better);
  const NetworkRates network = NetworkOf(*better), planned = NetworkOf(plan_);
  EXPECT_NEAR(network.interfaces[0].egress_bytes_per_second,
              planned.interfaces[0].egress_bytes_per_second / 10,
              planned.interfaces[0].egress_bytes_per_second / 100);
  EXPECT_DOUBLE_EQ(network.interfaces[1].egress_bytes_per_second,
                   planned.interfaces[1].egress_bytes_per_second);
  EXPECT_DOUBLE_EQ(network.interfaces[2].ingress_bytes_per_second,
                   planned.interfaces[2].ingress_bytes_per_second);
}

TEST_F(Retuning, LinksThatBecomeFasterAreFollowed) {
  MakeThePlan(absl::Milliseconds(20));
  for (Cell& cell : plan_.assignment.cells) cell.setting = {.depth = 1, .activation_lead = 0};
  Seen seen = AsPlanned();
  for (SeenEdge& edge : seen.edges) {
    edge.forward_bits_per_second = *edge.forward_bits_per_second * 4;
    edge.backward_bits_per_second = *edge.backward_bits_per_second * 4;
  }
  const auto better = Better(seen);
  ASSERT_TRUE(better);
  for (const Edge& edge : better->assignment.edges) {
    EXPECT_NEAR(edge.forward.bits_per_second, 4 * kLine, 0.1 * kLine);
    EXPECT_NEAR(edge.backward.bits_per_second, 4 * kLine, 0.1 * kLine);
  }
}

TEST_F(Retuning, WhatWasNotSeenStays) {
  MakeThePlan(absl::Milliseconds(1));
  Seen seen = AsPlanned();
  for (SeenEdge& edge : seen.edges) edge = {};
  EXPECT_EQ(Better(seen), std::nullopt);
}

// An assignment whose edges have ids that are not their places.
Assignment AssignmentOf(uint32_t stages) {
  Assignment assignment;
  for (uint32_t s = 0; s < stages; ++s) assignment.cells.push_back({.id = {.stage = s}});
  assignment.edges = chain::MakeEdges(1, stages);
  for (Edge& edge : assignment.edges) edge.id = EdgeId(edge.id.value() + 7);
  return assignment;
}

TEST(SeenIn, ReportsOfAStep) {
  RunSpec spec;
  spec.train.microbatches = 4;
  const Assignment assignment = AssignmentOf(3);
  std::vector<std::optional<v1::StepReport>> reports(3);
  const double waits[] = {0, 0.020, 0.070}, turns[] = {0.002, 0.005, 0};
  for (size_t s = 0; s < 3; ++s) {
    v1::StepReport& report = reports[s].emplace();
    report.set_forward_seconds(0.4);
    report.set_backward_seconds(0.8);
    report.set_optimizer_seconds(0.1);
    report.set_norm_wait_seconds(waits[s]);
    report.set_norm_turn_seconds(turns[s]);
    for (const Edge* edge : assignment.EdgesOf(assignment.cells[s].id, EdgeKind::kActivations)) {
      const bool down = edge->to == assignment.cells[s].id;
      v1::LinkUse& link = *report.add_links();
      link.set_edge(edge->id.value());
      link.set_received_bytes(down ? 1'000'000 : 100'000);  // the latter is too little
      link.set_receive_seconds(0.5);
    }
  }
  const Seen seen = SeenIn(spec, assignment, reports);
  ASSERT_EQ(seen.cells.size(), 3u);
  EXPECT_DOUBLE_EQ(seen.cells[1].forward_seconds, 0.1);
  EXPECT_DOUBLE_EQ(seen.cells[1].backward_seconds, 0.2);
  EXPECT_DOUBLE_EQ(seen.cells[1].optimizer_seconds, 0.1);
  ASSERT_EQ(seen.edges.size(), 2u);
  EXPECT_DOUBLE_EQ(*seen.edges[0].round_trip_seconds, 0.018);
  EXPECT_DOUBLE_EQ(*seen.edges[1].round_trip_seconds, 0.045);
  EXPECT_DOUBLE_EQ(*seen.edges[0].forward_bits_per_second, 16e6);
  EXPECT_EQ(seen.edges[0].backward_bits_per_second, std::nullopt);
}

// Reports are foreign bytes.
TEST(SeenIn, NumbersThatCannotBe) {
  RunSpec spec;
  spec.train.microbatches = 4;
  const Assignment assignment = AssignmentOf(2);
  for (const double bad :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<std::optional<v1::StepReport>> reports(2);
    for (auto& report : reports) {
      report.emplace();
      report->set_forward_seconds(bad);
      report->set_norm_wait_seconds(bad);
      report->set_norm_turn_seconds(bad);
      v1::LinkUse& link = *report->add_links();
      link.set_edge(7);
      link.set_received_bytes(std::numeric_limits<uint64_t>::max());
      link.set_receive_seconds(bad);
    }
    const Seen seen = SeenIn(spec, assignment, reports);
    EXPECT_EQ(seen.cells[0].forward_seconds, 0);
    EXPECT_EQ(seen.edges[0].round_trip_seconds, std::nullopt);
    EXPECT_EQ(seen.edges[0].forward_bits_per_second, std::nullopt);
    EXPECT_EQ(seen.edges[0].backward_bits_per_second, std::nullopt);
  }
}

// A rate of which the plan would become one without known rates.
TEST(SeenIn, RatesAndTimesThatNoMachineHas) {
  RunSpec spec;
  spec.train.microbatches = 1;
  const Assignment assignment = AssignmentOf(2);
  std::vector<std::optional<v1::StepReport>> reports(2);
  for (auto& report : reports) report.emplace();
  v1::LinkUse& link = *reports[1]->add_links();
  link.set_edge(7);
  link.set_received_bytes(uint64_t{1} << 40);
  link.set_receive_seconds(1e-300);
  reports[0]->set_forward_seconds(1e9);
  Seen seen = SeenIn(spec, assignment, reports);
  EXPECT_EQ(seen.edges[0].forward_bits_per_second, std::nullopt);
  EXPECT_EQ(seen.cells[0].forward_seconds, 0);
  // Long steps over slow lines are none.
  link.set_receive_seconds(2 * 3600);
  reports[0]->set_forward_seconds(2 * 3600);
  seen = SeenIn(spec, assignment, reports);
  EXPECT_DOUBLE_EQ(seen.edges[0].forward_bits_per_second.value_or(0), 0x1p43 / (2 * 3600));
  EXPECT_EQ(seen.cells[0].forward_seconds, 2 * 3600);
}

Seen OneOf(double forward, std::optional<double> rate, std::optional<double> trip) {
  return {{{forward, 0, 0}, {forward, 0, 0}}, {{rate, rate, trip}}};
}

TEST(MedianOf, EachValueOfThoseThatAreKnown) {
  const std::vector<Seen> steps = {OneOf(3, 10, std::nullopt), OneOf(1, std::nullopt, 0.2),
                                   OneOf(2, 30, std::nullopt), OneOf(9, 20, std::nullopt),
                                   OneOf(2, std::nullopt, std::nullopt)};
  const Seen median = MedianOf(steps);
  EXPECT_EQ(median.cells[1].forward_seconds, 2);
  EXPECT_EQ(median.edges[0].forward_bits_per_second, 20);
  EXPECT_EQ(median.edges[0].round_trip_seconds, 0.2);
}

TEST(Differs, ByAFifth) {
  const Seen usual = OneOf(1, 10, 0.1);
  EXPECT_FALSE(Differs(usual, usual));
  EXPECT_FALSE(Differs(usual, OneOf(1.2, 11, 0.11)));
  EXPECT_TRUE(Differs(usual, OneOf(1.4, 10, 0.1)));
  EXPECT_TRUE(Differs(usual, OneOf(1, 7, 0.1)));
  EXPECT_TRUE(Differs(usual, OneOf(1, 10, 0.2)));
  EXPECT_FALSE(Differs(usual, OneOf(1, std::nullopt, std::nullopt)));
  // Depths have some milliseconds to spare.
  EXPECT_FALSE(Differs(OneOf(1, 10, 0.001), OneOf(1, 10, 0.009)));
}

// Two replicas of three stages over lines of 1 Gbit/s, with links that are 1 ms long.
PlanRequest ReplicasToRetune() {
  PlanRequest request = Request(6);
  request.spec.replicas.count = 2;
  for (CandidateWorker& worker : request.workers) {
    for (const CandidateWorker& peer : request.workers) {
      if (peer.id != worker.id) worker.to[peer.id] = {kLine, absl::Milliseconds(1)};
    }
  }
  return request;
}

Seen PlannedTimes(const Plan& plan) {
  Seen seen;
  for (const CellEstimate& cell : plan.cells) {
    seen.cells.push_back({cell.forward_seconds, cell.backward_seconds, cell.optimizer_seconds});
  }
  seen.edges.resize(plan.edges.size());
  return seen;
}

TEST(RetuningOfReplicas, WhatIsAsPlannedStays) {
  const PlanRequest request = ReplicasToRetune();
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(MayRetune(request.spec, *plan));
  const auto same = Retune(request.spec, *plan, PlannedTimes(*plan));
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(*same, std::nullopt);
}

// The way of one replica gets longer. It gets what it would get if it were alone.
TEST(RetuningOfReplicas, FollowsTheOneWhoseLinksChange) {
  const PlanRequest request = ReplicasToRetune();
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Seen seen = PlannedTimes(*plan);
  PlanRequest alone = Request(3);
  for (size_t w = 0; w < 3; ++w) {
    for (const size_t peer : {w - 1, w + 1}) {
      if (peer < 3) alone.workers[w].to[alone.workers[peer].id] = {kLine, absl::Milliseconds(200)};
    }
  }
  for (size_t e = 0; e < plan->assignment.edges.size(); ++e) {
    const Edge& edge = plan->assignment.edges[e];
    if (edge.kind == EdgeKind::kActivations && edge.from.replica == 1) {
      seen.edges[e].round_trip_seconds = 0.4;
    }
  }
  const auto better = Retune(request.spec, *plan, seen);
  ASSERT_TRUE(better.ok()) << better.status();
  ASSERT_TRUE(*better);
  const Plan& retuned = **better;
  const auto expected = MakePlan(alone);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (uint32_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(retuned.assignment.Find(CellId{1, stage})->setting,
              expected->assignment.Find(CellId{0, stage})->setting);
  }
  EXPECT_THAT(retuned.retune_reason,
              HasSubstr("a round trip between w3 and w4 takes 400 ms where 2 ms were planned"));
  EXPECT_TRUE(CheckAssignment(retuned.assignment).ok()) << CheckAssignment(retuned.assignment);
  // The step is that of the slowest, with the exchange.
  EXPECT_NEAR(retuned.prediction.step_seconds,
              expected->prediction.step_seconds + retuned.prediction.exchange_seconds, 1e-6);
  EXPECT_NEAR(retuned.prediction.exchange_seconds, plan->prediction.exchange_seconds, 1e-9);
  EXPECT_EQ(retuned.prediction.cells.size(), 6u);
  EXPECT_EQ(retuned.prediction.edges.size(), retuned.assignment.edges.size());
  // Between replicas links are as they were.
  EXPECT_EQ(retuned.assignment.edges.back().forward.latency_seconds,
            plan->assignment.edges.back().forward.latency_seconds);
  for (size_t c = 0; c < 6; ++c) {
    const auto grown =
        retuned.assignment.cells[c].memory_bytes - plan->assignment.cells[c].memory_bytes;
    EXPECT_EQ(grown,
              plan->cells[c].memory_per_flight_bytes * (retuned.assignment.cells[c].setting.depth -
                                                        plan->assignment.cells[c].setting.depth));
  }
}

TEST(MayRetune, WhereDepthsAreThePlansToChoose) {
  PlanRequest request = Request(2);
  SetLines(&request, kLine);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(MayRetune(request.spec, *plan));
  RunSpec fixed = request.spec;
  fixed.pipeline.depth = 2;
  EXPECT_FALSE(MayRetune(fixed, *plan));
  RunSpec classic = request.spec;
  classic.pipeline.schedule = ScheduleKind::kOneFOneB;
  EXPECT_FALSE(MayRetune(classic, *plan));
  RunSpec large = request.spec;
  large.train.microbatches = 100'000;
  EXPECT_TRUE(MayRetune(large, *plan)) << "the budget bounds it";
  const auto unknown = MakePlan(Request(2));
  ASSERT_TRUE(unknown.ok());
  EXPECT_FALSE(MayRetune(request.spec, *unknown));
}

}  // namespace
}  // namespace longhaul::coordinator
