// Depths and order that follow what was seen of a running pipeline.
#include "coordinator/planner/retune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "coordinator/planner/pipeline_cost.h"
#include "tests/unit/coordinator/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr double kLine = 1e9;

class Retuning : public ::testing::Test {
 protected:
  // Of three stages over lines of 1 Gbit/s.
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
    for (const v1::StagePlan& stage : plan_.stages()) {
      seen.stages.push_back(
          {stage.forward_seconds(), stage.backward_seconds(), stage.optimizer_seconds()});
    }
    for (size_t b = 0; b < cost.boundaries.size(); ++b) {
      const auto rate = [&](double bytes, double share) {
        return 8 * bytes * cost.microbatches / (share * step);
      };
      const schedule::BoundaryUse& use = simulation->boundaries[b];
      seen.links.push_back({rate(cost.boundaries[b].forward_bytes, use.forward.busy_share),
                            rate(cost.boundaries[b].backward_bytes, use.backward.busy_share),
                            2 * absl::ToDoubleSeconds(cost.boundaries[b].forward_latency)});
    }
    return seen;
  }
  double SimulatedStep(const v1::Plan& plan) const {
    const auto simulation = schedule::Simulate(PipelineCostOf(plan, spec_, NetworkOf(plan)));
    return simulation.ok() ? absl::ToDoubleSeconds(simulation->step) : 0;
  }
  std::optional<v1::Plan> Better(const Seen& seen) const {
    auto better = Retune(spec_, plan_, seen);
    EXPECT_TRUE(better.ok()) << better.status();
    return better.ok() ? *std::move(better) : std::nullopt;
  }

  RunSpec spec_;
  v1::Plan plan_;
};

TEST_F(Retuning, WhatIsAsPlannedStays) {
  MakeThePlan(absl::Milliseconds(1));
  EXPECT_EQ(Better(AsPlanned()), std::nullopt);
}

TEST_F(Retuning, ALongerWayNeedsMoreInFlight) {
  MakeThePlan(absl::Milliseconds(1));
  ASSERT_LT(plan_.stages(1).depth(), 16u);
  Seen seen = AsPlanned();
  for (SeenLink& link : seen.links) link.round_trip_seconds = 0.4;
  const auto better = Better(seen);
  ASSERT_TRUE(better);
  EXPECT_GT(better->stages(0).depth(), plan_.stages(0).depth());
  EXPECT_GT(better->stages(1).depth(), plan_.stages(1).depth());
  EXPECT_DOUBLE_EQ(better->links(0).forward_latency_seconds(), 0.2);
  EXPECT_EQ(better->retunes(), 1u);
  EXPECT_THAT(better->retune_reason(),
              HasSubstr("a round trip between w0 and w1 takes 400 ms where 2 ms were planned"));
  EXPECT_EQ(better->stages(0).memory_bytes() - plan_.stages(0).memory_bytes(),
            (better->stages(0).depth() - plan_.stages(0).depth()) *
                plan_.stages(0).memory_per_flight_bytes());
  // The prediction is of the plan as it is now.
  EXPECT_DOUBLE_EQ(better->prediction().step_seconds(), SimulatedStep(*better));
  v1::Plan as_it_was = *better;
  for (int s = 0; s < 3; ++s) {
    as_it_was.mutable_stages(s)->set_depth(plan_.stages(s).depth());
    as_it_was.mutable_stages(s)->set_activation_lead(plan_.stages(s).activation_lead());
  }
  EXPECT_LT(better->prediction().step_seconds(), 0.95 * SimulatedStep(as_it_was));
}

TEST_F(Retuning, NoDeeperThanMemoryHolds) {
  MakeThePlan(absl::Milliseconds(1));
  Seen seen = AsPlanned();
  for (SeenLink& link : seen.links) link.round_trip_seconds = 0.4;
  ASSERT_LT(plan_.stages(0).depth(), 15u);
  const uint32_t most = plan_.stages(0).depth() + 1;
  plan_.mutable_stages(0)->set_depth_by_memory(most);
  const auto better = Better(seen);
  ASSERT_TRUE(better);
  EXPECT_EQ(better->stages(0).depth(), most);
}

TEST_F(Retuning, AnInterfaceThatBecomesSlowerIsFoundByItsLinks) {
  MakeThePlan(absl::Milliseconds(20));
  for (v1::StagePlan& stage : *plan_.mutable_stages()) {
    stage.set_depth(1);
    stage.set_activation_lead(0);
  }
  // The first worker's uplink alone.
  Seen slow = AsPlanned();
  slow.links[0].forward_bits_per_second = *slow.links[0].forward_bits_per_second / 10;
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
  for (v1::StagePlan& stage : *plan_.mutable_stages()) {
    stage.set_depth(1);
    stage.set_activation_lead(0);
  }
  Seen seen = AsPlanned();
  for (SeenLink& link : seen.links) {
    link.forward_bits_per_second = *link.forward_bits_per_second * 4;
    link.backward_bits_per_second = *link.backward_bits_per_second * 4;
  }
  const auto better = Better(seen);
  ASSERT_TRUE(better);
  for (const v1::LinkPlan& link : better->links()) {
    EXPECT_NEAR(link.forward_bits_per_second(), 4 * kLine, 0.1 * kLine);
    EXPECT_NEAR(link.backward_bits_per_second(), 4 * kLine, 0.1 * kLine);
  }
}

TEST_F(Retuning, WhatWasNotSeenStays) {
  MakeThePlan(absl::Milliseconds(1));
  Seen seen = AsPlanned();
  for (SeenLink& link : seen.links) link = {};
  EXPECT_EQ(Better(seen), std::nullopt);
}

TEST(SeenIn, ReportsOfAStep) {
  RunSpec spec;
  spec.train.microbatches = 4;
  std::vector<std::optional<v1::StepReport>> reports(3);
  const double waits[] = {0, 0.020, 0.070}, turns[] = {0.002, 0.005, 0};
  for (size_t s = 0; s < 3; ++s) {
    v1::StepReport& report = reports[s].emplace();
    report.set_forward_seconds(0.4);
    report.set_backward_seconds(0.8);
    report.set_optimizer_seconds(0.1);
    report.set_norm_wait_seconds(waits[s]);
    report.set_norm_turn_seconds(turns[s]);
    for (const bool up : {true, false}) {
      if (up ? s == 0 : s == 2) continue;
      v1::LinkUse& link = *report.add_links();
      link.set_up(up);
      link.set_received_bytes(up ? 1'000'000 : 100'000);  // the latter is too little
      link.set_receive_seconds(0.5);
    }
  }
  const Seen seen = SeenIn(spec, reports);
  ASSERT_EQ(seen.stages.size(), 3u);
  EXPECT_DOUBLE_EQ(seen.stages[1].forward_seconds, 0.1);
  EXPECT_DOUBLE_EQ(seen.stages[1].backward_seconds, 0.2);
  EXPECT_DOUBLE_EQ(seen.stages[1].optimizer_seconds, 0.1);
  ASSERT_EQ(seen.links.size(), 2u);
  EXPECT_DOUBLE_EQ(*seen.links[0].round_trip_seconds, 0.018);
  EXPECT_DOUBLE_EQ(*seen.links[1].round_trip_seconds, 0.045);
  EXPECT_DOUBLE_EQ(*seen.links[0].forward_bits_per_second, 16e6);
  EXPECT_EQ(seen.links[0].backward_bits_per_second, std::nullopt);
}

// Reports are foreign bytes.
TEST(SeenIn, NumbersThatCannotBe) {
  RunSpec spec;
  spec.train.microbatches = 4;
  for (const double bad :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<std::optional<v1::StepReport>> reports(2);
    for (auto& report : reports) {
      report.emplace();
      report->set_forward_seconds(bad);
      report->set_norm_wait_seconds(bad);
      report->set_norm_turn_seconds(bad);
      v1::LinkUse& link = *report->add_links();
      link.set_up(&report == &reports[1]);
      link.set_received_bytes(std::numeric_limits<uint64_t>::max());
      link.set_receive_seconds(bad);
    }
    const Seen seen = SeenIn(spec, reports);
    EXPECT_EQ(seen.stages[0].forward_seconds, 0);
    EXPECT_EQ(seen.links[0].round_trip_seconds, std::nullopt);
    EXPECT_EQ(seen.links[0].forward_bits_per_second, std::nullopt);
    EXPECT_EQ(seen.links[0].backward_bits_per_second, std::nullopt);
  }
}

// A rate of which the plan would become one without known rates.
TEST(SeenIn, RatesAndTimesThatNoMachineHas) {
  RunSpec spec;
  spec.train.microbatches = 1;
  std::vector<std::optional<v1::StepReport>> reports(2);
  for (auto& report : reports) report.emplace();
  v1::LinkUse& link = *reports[1]->add_links();
  link.set_up(true);
  link.set_received_bytes(uint64_t{1} << 40);
  link.set_receive_seconds(1e-300);
  reports[0]->set_forward_seconds(1e9);
  Seen seen = SeenIn(spec, reports);
  EXPECT_EQ(seen.links[0].forward_bits_per_second, std::nullopt);
  EXPECT_EQ(seen.stages[0].forward_seconds, 0);
  // Long steps over slow lines are none.
  link.set_receive_seconds(2 * 3600);
  reports[0]->set_forward_seconds(2 * 3600);
  seen = SeenIn(spec, reports);
  EXPECT_DOUBLE_EQ(seen.links[0].forward_bits_per_second.value_or(0), 0x1p43 / (2 * 3600));
  EXPECT_EQ(seen.stages[0].forward_seconds, 2 * 3600);
}

Seen OneOf(double forward, std::optional<double> rate, std::optional<double> trip) {
  return {{{forward, 0, 0}, {forward, 0, 0}}, {{rate, rate, trip}}};
}

TEST(MedianOf, EachValueOfThoseThatAreKnown) {
  const std::vector<Seen> steps = {OneOf(3, 10, std::nullopt), OneOf(1, std::nullopt, 0.2),
                                   OneOf(2, 30, std::nullopt), OneOf(9, 20, std::nullopt),
                                   OneOf(2, std::nullopt, std::nullopt)};
  const Seen median = MedianOf(steps);
  EXPECT_EQ(median.stages[1].forward_seconds, 2);
  EXPECT_EQ(median.links[0].forward_bits_per_second, 20);
  EXPECT_EQ(median.links[0].round_trip_seconds, 0.2);
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
  large.train.microbatches = 10'000;
  EXPECT_TRUE(MayRetune(large, *plan));
  large.train.microbatches = 10'001;
  EXPECT_FALSE(MayRetune(large, *plan)) << "the coordinator would stand still";
  const auto unknown = MakePlan(Request(2));
  ASSERT_TRUE(unknown.ok());
  EXPECT_FALSE(MayRetune(request.spec, *unknown));
}

}  // namespace
}  // namespace longhaul::coordinator
