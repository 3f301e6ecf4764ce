// Properties of the simulator and the bound over random instances.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "run/plan/chain.h"
#include "run/schedule/policy.h"
#include "run/schedule/simulator.h"
#include "run/schedule/tune.h"

namespace longhaul::schedule {
namespace {

class Instances {
 public:
  explicit Instances(uint64_t seed) : random_(seed) {}

  double Pick(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  uint32_t Count(uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random_);
  }

  PipelineCost Next() {
    PipelineCost cost;
    cost.microbatches = Count(1, 24);
    cost.slices = Count(1, 4);
    const uint32_t stages = Count(1, 6);
    for (uint32_t s = 0; s < stages; ++s) {
      cost.stages.push_back({.forward = absl::Seconds(Pick(0, 1)),
                             .backward = absl::Seconds(Pick(0, 2)),
                             .optimizer = absl::Seconds(Pick(0, 0.2)),
                             .egress_bytes_per_second = Rate(),
                             .ingress_bytes_per_second = Rate(),
                             .depth = Count(1, cost.microbatches)});
    }
    for (uint32_t b = 0; b < chain::Boundaries(stages); ++b) {
      cost.boundaries.push_back({.forward = AnyFlow(), .backward = AnyFlow()});
    }
    return cost;
  }

  // Leads as long as depths above allow.
  void SetLeads(PipelineCost* cost) {
    uint32_t most = cost->microbatches;
    for (uint32_t s = 0; s < cost->stages.size(); ++s) {
      StageCost& stage = cost->stages[s];
      stage.activation_lead = s == 0 ? 0 : Count(0, most);
      most = std::min(most, EffectiveDepth({.kind = cost->schedule,
                                            .stage = StageIndex(s),
                                            .stages = static_cast<uint32_t>(cost->stages.size()),
                                            .microbatches = cost->microbatches,
                                            .depth = stage.depth}));
    }
  }

 private:
  FlowCost AnyFlow() {
    return {.bytes = Pick(0, 300),
            .bytes_per_second = Rate(),
            .latency = absl::Seconds(Pick(0, 0.1)),
            .encode = absl::Seconds(Pick(0, 0.05)),
            .decode = absl::Seconds(Pick(0, 0.05))};
  }
  double Rate() { return Pick(0, 1) < 0.3 ? kUnlimited : Pick(50, 500); }
  std::mt19937_64 random_;
};

// The bound knows no queue at a codec, and a codec's order of work is not fixed.
void WithoutCodecs(PipelineCost* cost) {
  for (BoundaryCost& boundary : cost->boundaries) {
    boundary.forward.encode = boundary.forward.decode = boundary.backward.encode =
        boundary.backward.decode = absl::ZeroDuration();
  }
}

constexpr ScheduleKind kAllKinds[] = {ScheduleKind::kLinkAware, ScheduleKind::kOneFOneB,
                                      ScheduleKind::kGpipe};

absl::Duration Sum(const StageTime& time) {
  return time.compute + time.codec + time.wait_above + time.wait_below + time.optimizer;
}

TEST(SimulatorPropertyTest, NeverFasterThanTheBoundAndNeverStuck) {
  Instances instances(7);
  for (int i = 0; i < 1000; ++i) {
    PipelineCost cost = instances.Next();
    for (const ScheduleKind kind : kAllKinds) {
      cost.schedule = kind;
      instances.SetLeads(&cost);
      cost.shared_efficiency = i % 3 == 0 ? 0.8 : 1;
      const auto result = Simulate(cost);
      ASSERT_TRUE(result.ok()) << "instance " << i << ": " << result.status();
      EXPECT_GE(result->step, 0.999999 * result->lower_bound) << "instance " << i;
      EXPECT_GE(result->lower_bound, result->busiest.step) << "instance " << i;
    }
  }
}

TEST(SimulatorPropertyTest, PartsOfEveryStageAddUpAndNothingIsUsedMoreThanThereIs) {
  Instances instances(17);
  for (int i = 0; i < 500; ++i) {
    PipelineCost cost = instances.Next();
    instances.SetLeads(&cost);
    const auto result = Simulate(cost);
    ASSERT_TRUE(result.ok()) << "instance " << i << ": " << result.status();
    for (size_t s = 0; s < cost.stages.size(); ++s) {
      const StageUse& use = result->stages[s];
      EXPECT_LE(absl::AbsDuration(Sum(use.time) - result->step), absl::Microseconds(1))
          << "instance " << i << " stage " << s;
      EXPECT_EQ(use.time.optimizer, cost.stages[s].optimizer);
      EXPECT_NEAR(absl::ToDoubleSeconds(use.time.compute),
                  cost.AllSlices() *
                      absl::ToDoubleSeconds(cost.stages[s].forward + cost.stages[s].backward),
                  1e-6);
      for (const absl::Duration part : {use.time.codec, use.time.wait_above, use.time.wait_below}) {
        EXPECT_GE(part, -absl::Microseconds(1)) << "instance " << i << " stage " << s;
      }
      EXPECT_LE(use.egress_share, 1 + 1e-9);
      EXPECT_LE(use.ingress_share, 1 + 1e-9);
    }
    for (const BoundaryUse& use : result->boundaries) {
      for (const DirectionUse& link : {use.forward, use.backward}) {
        EXPECT_LE(link.busy_share, 1 + 1e-9) << "instance " << i;
        EXPECT_LE(link.rate_share, link.busy_share + 1e-9) << "instance " << i;
      }
    }
  }
}

// Steps in a row: each takes at least what the busiest resource does of it, and no longer than one
// that waits for the one before it. In one of twenty instances it does take a little longer: of two
// steps more is under way at once, and what is not urgent shares the links.
TEST(SimulatorPropertyTest, StepsThatOverlapAreBetweenTheFloorAndOneAlone) {
  Instances instances(29);
  int longer = 0;
  for (int i = 0; i < 500; ++i) {
    PipelineCost cost = instances.Next();
    const auto alone = Simulate(cost);
    cost.schedule = ScheduleKind::kTwoVersions;
    const auto overlapping = Simulate(cost);
    ASSERT_TRUE(alone.ok() && overlapping.ok()) << "instance " << i << ": " << overlapping.status();
    EXPECT_EQ(overlapping->lower_bound, overlapping->busiest.step);
    EXPECT_GE(overlapping->step, overlapping->lower_bound) << "instance " << i;
    EXPECT_LE(overlapping->step, 1.1 * alone->step) << "instance " << i;
    longer += overlapping->step > 1.001 * alone->step;
    for (size_t s = 0; s < cost.stages.size(); ++s) {
      const StageUse& use = overlapping->stages[s];
      EXPECT_LE(absl::AbsDuration(Sum(use.time) - overlapping->step), absl::Microseconds(1));
      EXPECT_LE(use.egress_share, 1 + 1e-9);
      EXPECT_LE(use.ingress_share, 1 + 1e-9);
    }
  }
  EXPECT_LE(longer, 30);
}

TEST(SimulatorPropertyTest, OneStageIsAtTheBound) {
  Instances instances(19);
  for (int i = 0; i < 100; ++i) {
    PipelineCost cost = instances.Next();
    cost.stages.resize(1);
    cost.boundaries.clear();
    for (const ScheduleKind kind : kAllKinds) {
      cost.schedule = kind;
      const auto result = Simulate(cost);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_LE(absl::AbsDuration(result->step - result->lower_bound), absl::Microseconds(1));
    }
  }
}

// Links that cost nothing and stages alike: every schedule is the textbook's.
TEST(SimulatorPropertyTest, ComputeAloneIsAtTheBound) {
  Instances instances(23);
  for (int i = 0; i < 200; ++i) {
    PipelineCost cost;
    cost.microbatches = instances.Count(1, 24);
    const uint32_t stages = instances.Count(1, 8);
    cost.stages.assign(stages, {.forward = absl::Seconds(instances.Pick(0.1, 1)),
                                .backward = absl::Seconds(instances.Pick(0.1, 2)),
                                .depth = cost.microbatches});
    cost.boundaries.assign(chain::Boundaries(stages), {});
    for (const ScheduleKind kind : kAllKinds) {
      cost.schedule = kind;
      const auto result = Simulate(cost);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_LE(absl::AbsDuration(result->step - result->lower_bound), absl::Microseconds(1))
          << "instance " << i;
    }
  }
}

// Where one direction of one link dominates, its transfers follow each other without a gap.
TEST(SimulatorPropertyTest, OneDominantLinkIsAtTheBound) {
  Instances instances(29);
  for (int i = 0; i < 200; ++i) {
    PipelineCost cost = instances.Next();
    if (cost.boundaries.empty() || cost.microbatches == 1) continue;
    WithoutCodecs(&cost);
    for (StageCost& stage : cost.stages) {
      stage.egress_bytes_per_second = stage.ingress_bytes_per_second = kUnlimited;
      stage.optimizer = absl::ZeroDuration();
      stage.depth = cost.microbatches;
    }
    BoundaryCost& slow = cost.boundaries[i % cost.boundaries.size()];
    slow.forward.bytes = 300;
    slow.forward.bytes_per_second = 300.0 / 60;  // far longer than all else of a microbatch
    const auto result = Simulate(cost);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_LE(absl::AbsDuration(result->step - result->lower_bound), absl::Microseconds(1))
        << "instance " << i;
    EXPECT_EQ(result->bottleneck.substr(0, 4), "link");
  }
}

// The bound is monotonic: no resource that gets slower makes it smaller.
TEST(SimulatorPropertyTest, ASlowerResourceNeverLowersTheBound) {
  Instances instances(31);
  for (int i = 0; i < 300; ++i) {
    PipelineCost cost = instances.Next();
    const auto before = Simulate(cost);
    ASSERT_TRUE(before.ok()) << before.status();
    StageCost& stage = cost.stages[i % cost.stages.size()];
    switch (instances.Count(0, cost.boundaries.empty() ? 1 : 4)) {
      case 0:
        stage.forward *= 1.5;
        break;
      case 1:
        stage.backward *= 1.5;
        break;
      case 2:
        stage.egress_bytes_per_second = std::min(stage.egress_bytes_per_second, 400.0) / 1.5;
        break;
      case 3:
        stage.ingress_bytes_per_second = std::min(stage.ingress_bytes_per_second, 400.0) / 1.5;
        break;
      case 4:
        cost.boundaries[i % cost.boundaries.size()].backward.latency += absl::Seconds(0.3);
        break;
    }
    EXPECT_GE(Simulate(cost)->lower_bound, before->lower_bound - absl::Microseconds(1))
        << "instance " << i;
  }
}

// GPipe's stages and links serve in a fixed order, and in a network of such queues nothing comes
// earlier because something else comes later. Elsewhere it is no theorem: where a stage chooses
// between a forward and a backward, or links share an interface, a gradient that comes later can
// let a forward go first on which more depends, and the step ends earlier.
TEST(SimulatorPropertyTest, InAFixedOrderASlowerResourceNeverMakesAStepShorter) {
  Instances instances(37);
  for (int i = 0; i < 300; ++i) {
    PipelineCost cost = instances.Next();
    cost.schedule = ScheduleKind::kGpipe;
    WithoutCodecs(&cost);
    for (StageCost& stage : cost.stages) {
      stage.egress_bytes_per_second = stage.ingress_bytes_per_second = kUnlimited;
      stage.depth = cost.microbatches;
    }
    const auto before = Simulate(cost);
    ASSERT_TRUE(before.ok()) << before.status();
    if (cost.boundaries.empty() || instances.Count(0, 1) == 0) {
      cost.stages[i % cost.stages.size()].forward += absl::Seconds(instances.Pick(0, 1));
    } else {
      BoundaryCost& link = cost.boundaries[i % cost.boundaries.size()];
      link.backward.bytes_per_second = std::min(link.backward.bytes_per_second, 400.0) / 2;
    }
    EXPECT_GE(Simulate(cost)->step, before->step - absl::Microseconds(1)) << "instance " << i;
  }
}

// What the floor is made of, counted in another way.
TEST(SimulatorPropertyTest, TheFloorIsWhatTheBusiestResourceDoes) {
  Instances instances(43);
  for (int i = 0; i < 300; ++i) {
    const PipelineCost cost = instances.Next();
    const auto result = Simulate(cost);
    ASSERT_TRUE(result.ok()) << result.status();
    const double step = absl::ToDoubleSeconds(result->step);
    double most = 0;
    for (const StageUse& use : result->stages) {
      most = std::max({most, use.egress_share * step, use.ingress_share * step,
                       absl::ToDoubleSeconds(use.time.compute + use.time.optimizer)});
    }
    for (size_t b = 0; b < cost.boundaries.size(); ++b) {
      for (const Direction way : {Direction::kForward, Direction::kBackward}) {
        const FlowCost& flow = cost.boundaries[b].Of(way);
        most = std::max(most, cost.AllSlices() * flow.bytes / flow.bytes_per_second);
      }
    }
    EXPECT_NEAR(absl::ToDoubleSeconds(result->busiest.step), most, 1e-6) << "instance " << i;
    const bool computes = result->busiest.name.starts_with("compute");
    EXPECT_EQ(result->busiest.bytes == 0, computes) << "instance " << i;
  }
}

// The same work in more and smaller parts, over links that the bound says all of: filling and
// draining takes less, and what one resource has to do stays.
TEST(SimulatorPropertyTest, MoreSlicesLowerTheBoundAndNotTheFloor) {
  Instances instances(47);
  for (int i = 0; i < 300; ++i) {
    PipelineCost cost = instances.Next();
    cost.slices = 1;
    PipelineCost cut = cost;
    cut.slices = instances.Count(2, 8);
    for (StageCost& stage : cut.stages) {
      stage.forward /= cut.slices;
      stage.backward /= cut.slices;
    }
    for (BoundaryCost& boundary : cut.boundaries) {
      for (FlowCost* flow : {&boundary.forward, &boundary.backward}) {
        flow->bytes /= cut.slices;
        flow->encode /= cut.slices;
        flow->decode /= cut.slices;
      }
    }
    const auto whole = Simulate(cost), sliced = Simulate(cut);
    ASSERT_TRUE(whole.ok() && sliced.ok());
    EXPECT_LE(sliced->lower_bound, whole->lower_bound + absl::Microseconds(1)) << "instance " << i;
    EXPECT_LE(absl::AbsDuration(sliced->busiest.step - whole->busiest.step), absl::Microseconds(1))
        << "instance " << i;
  }
}

TEST(SimulatorPropertyTest, IsDeterministic) {
  Instances instances(11);
  for (int i = 0; i < 50; ++i) {
    const PipelineCost cost = instances.Next();
    EXPECT_EQ(Simulate(cost)->step, Simulate(cost)->step);
  }
}

TEST(TunePropertyTest, IsNoDeeperAndWithinATolerance) {
  Instances instances(41);
  for (int i = 0; i < 60; ++i) {
    PipelineCost cost = instances.Next();
    const auto tuning = Tune(cost, {});
    ASSERT_TRUE(tuning.ok()) << "instance " << i << ": " << tuning.status();
    for (size_t s = 0; s < cost.stages.size(); ++s) {
      EXPECT_LE(tuning->depths[s], cost.stages[s].depth) << "instance " << i;
      cost.stages[s].depth = tuning->depths[s];
      cost.stages[s].activation_lead = tuning->leads[s];
    }
    const auto chosen = Simulate(cost);
    ASSERT_TRUE(chosen.ok()) << "instance " << i << ": " << chosen.status();
    EXPECT_EQ(chosen->step, tuning->step) << "instance " << i;
    // The tolerance is of the mean of two opinions, of which this is one.
    EXPECT_LE(tuning->step,
              std::max(tuning->limited, tuning->unlimited * (1 + kDepthTolerance)) * 1.05)
        << "instance " << i;
  }
}

}  // namespace
}  // namespace longhaul::schedule
