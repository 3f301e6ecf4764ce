#include "deploy/sweep/points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace longhaul::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kRun[] = R"(name: tiny
model: { layers: 4, hidden: 64, heads: 4, context: 64 }
data: { text: [a.txt] }
train: { steps: 20, microbatches: 4 }
pipeline: { stages: 4 }
)";

SweepSpec PointsSpec() {
  SweepSpec spec;
  spec.base = "run.yaml";
  spec.rates = {10'000'000, 1'000'000};
  spec.delays = {absl::ZeroDuration(), absl::Milliseconds(25)};
  spec.links = {{"fp32", {"none", "none"}},
                {"default", {"tah", "fixed:bits=4,rounding=stochastic"}}};
  return spec;
}

StatusOr<SweepPlan> Make(const SweepSpec& spec, std::string_view run = kRun,
                         const std::vector<std::string>& more = {}) {
  return MakeSweepPlan(spec, run, "run.yaml", more);
}

TEST(MakeSweepPlan, ReplicasAreVariantsThatNeedWorkersOfTheirOwn) {
  SweepSpec spec = PointsSpec();
  spec.variants = {{"one", {}}, {"two", {"pipeline.replicas=2", "pipeline.gradients=sdp4bit"}}};
  const auto plan = Make(spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->workers, 8u);
  spec.workers = 7;
  const auto too_few = Make(spec);
  ASSERT_TRUE(too_few.ok()) << too_few.status();
  for (const SweepPoint& point : too_few->points) {
    const char* const expected =
        point.variant == "one" ? "" : "its 2 times 4 stages need as many workers";
    EXPECT_EQ(point.impossible.substr(0, std::string_view(expected).size()), expected);
    EXPECT_EQ(point.impossible.empty(), point.variant == "one");
  }
}

TEST(MakeSweepPlan, ReplicasAreNoPlansToChoose) {
  SweepSpec spec = PointsSpec();
  spec.variants = {{"open", {"pipeline.replicas=auto"}}};
  const auto plan = Make(spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const SweepPoint& point : plan->points) {
    EXPECT_NE(point.impossible.find("pipeline.replicas is auto"), std::string::npos);
  }
}

TEST(MakeSweepPlan, HasEveryCombinationOnce) {
  SweepSpec spec = PointsSpec();
  spec.schedules = {ScheduleKind::kLinkAware, ScheduleKind::kOneFOneB};
  spec.variants = {{"short", {"train.steps=10"}}, {"long", {"train.steps=30"}}};
  spec.repeats = 2;
  const auto plan = Make(spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->workers, 4u);
  ASSERT_EQ(plan->points.size(), 2u * 2 * 2 * 2 * 2 * 2);
  std::set<std::string> ids, names;
  for (const SweepPoint& point : plan->points) {
    EXPECT_EQ(point.impossible, "");
    ids.insert(point.id);
    names.insert(point.spec.name);
    EXPECT_EQ(point.spec.links.codecs, point.links.codecs);
    EXPECT_EQ(point.spec.pipeline.schedule, point.schedule);
    EXPECT_EQ(point.spec.train.steps, point.variant == "short" ? 10u : 30u);
  }
  EXPECT_EQ(ids.size(), plan->points.size());
  EXPECT_EQ(names.size(), plan->points.size());
  EXPECT_EQ(plan->points[0].id, "10mbit/0ms/fp32/link-aware/short/r1");
  // A repeat of everything comes after everything.
  EXPECT_EQ(plan->points[31].repeat, 1u);
  EXPECT_EQ(plan->points[32].repeat, 2u);
}

TEST(MakeSweepPlan, TheBaseRunSaysTheScheduleWhereTheSweepDoesNot) {
  const auto plan = Make(PointsSpec(), std::string(kRun) + "transport: grpc\n",
                         {"pipeline.schedule=gpipe", "train.seed=7"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->points[0].schedule, ScheduleKind::kGpipe);
  EXPECT_EQ(plan->points[0].spec.train.seed, 7u);
  EXPECT_EQ(plan->points[0].spec.transport, TransportKind::kGrpc);
}

TEST(MakeSweepPlan, ErrorsOfTheBaseRunAreErrorsOfTheSweep) {
  const auto plan = Make(PointsSpec(), std::string(kRun) + "trian: 3\n");
  EXPECT_THAT(std::string(Message(plan.status())), HasSubstr("run.yaml:6:1: unknown key 'trian'"));
  SweepSpec spec = PointsSpec();
  spec.set = {"train.stepps=3"};
  EXPECT_THAT(std::string(Message(Make(spec).status())), HasSubstr("did you mean 'steps'?"));
}

TEST(MakeSweepPlan, APointMayBeImpossibleAlone) {
  SweepSpec spec = PointsSpec();
  spec.delays = {absl::ZeroDuration()};
  spec.rates = {10'000'000};
  spec.warm_up = 5;
  spec.variants = {{"fine", {}},
                   {"wrong", {"model.heads=7"}},
                   {"wide", {"pipeline.stages=3", "train.microbatches=2"}},
                   {"short", {"train.steps=5"}}};
  spec.workers = 2;
  const auto plan = Make(spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const SweepPoint& point : plan->points) {
    if (point.variant == "wrong") {
      EXPECT_THAT(point.impossible, HasSubstr("heads"));
    } else if (point.variant == "short") {
      EXPECT_THAT(point.impossible,
                  HasSubstr("train.steps is 5 and the first 5 steps are warm-up"));
    } else {
      EXPECT_THAT(point.impossible, HasSubstr("the sweep's cluster has 2; raise workers"));
    }
  }
}

TEST(MakeSweepPlan, AutomaticStagesNeedANumberOfWorkers) {
  const std::string run = std::string(kRun).substr(0, std::string(kRun).find("pipeline"));
  EXPECT_THAT(std::string(Message(Make(PointsSpec(), run).status())), HasSubstr("workers: 4"));
  SweepSpec spec = PointsSpec();
  spec.workers = 3;
  const auto plan = Make(spec, run);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->workers, 3u);
}

TEST(MakeSweepPlan, WhatTheSweepSaysIsNotChangedBesidesIt) {
  for (const char* change : {"name=x", "links=paper", "links.forward=none", "links.measure=false",
                             "pipeline={ depth: 1 }"}) {
    SweepSpec spec = PointsSpec();
    spec.set = {change};
    EXPECT_THAT(std::string(Message(Make(spec).status())), HasSubstr("the sweep's `set` changes"));
    EXPECT_THAT(std::string(Message(Make(PointsSpec(), kRun, {change}).status())),
                HasSubstr("--set changes"));
    spec = PointsSpec();
    spec.variants = {{"a", {change}}};
    EXPECT_THAT(std::string(Message(Make(spec).status())),
                HasSubstr("the sweep's variant 'a' changes"));
  }
  SweepSpec spec = PointsSpec();
  spec.set = {"pipeline.schedule=gpipe"};
  EXPECT_EQ(Make(spec)->points[0].schedule, ScheduleKind::kGpipe);
  spec.schedules = {ScheduleKind::kLinkAware};
  EXPECT_THAT(std::string(Message(Make(spec).status())),
              HasSubstr("name it in the sweep's `schedules`"));
  spec = PointsSpec();
  spec.variants = {{"a", {"pipeline.schedule=gpipe"}}};
  EXPECT_FALSE(Make(spec).ok());
}

TEST(MakeSweepPlan, NoTwoPointsHaveOneName) {
  SweepSpec spec = PointsSpec();
  spec.delays = {absl::ZeroDuration(), absl::Nanoseconds(400)};
  EXPECT_THAT(std::string(Message(Make(spec).status())),
              HasSubstr("two points of the sweep are called 10mbit/0ms/fp32/link-aware/r1"));
}

TEST(MakeSweepPlan, TooManyPointsAreRefused) {
  SweepSpec spec = PointsSpec();
  spec.repeats = 1000;
  spec.schedules = {ScheduleKind::kLinkAware, ScheduleKind::kOneFOneB};
  EXPECT_THAT(std::string(Message(Make(spec).status())), HasSubstr("16000 points and may have"));
}

TEST(Describe, SaysWhatDiffers) {
  SweepSpec spec = PointsSpec();
  spec.repeats = 2;
  const auto plan = Make(spec);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(Describe(plan->points[0], spec), "10mbit, 0ms, fp32, repeat 1");
  spec.delays = {absl::ZeroDuration()};
  spec.repeats = 1;
  EXPECT_EQ(Describe(Make(spec)->points[1], spec), "10mbit, default");
}

}  // namespace
}  // namespace longhaul::cli
