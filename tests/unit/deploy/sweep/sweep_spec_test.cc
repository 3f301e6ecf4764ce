#include "deploy/sweep/sweep_spec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StatusOr<SweepSpec> Parse(std::string_view yaml) {
  return ParseSweepSpec(yaml, "sweep.yaml");
}

std::string Problem(std::string_view yaml) {
  return std::string(Message(Parse(yaml).status()));
}

constexpr char kLeast[] =
    "base: run.yaml\nrates: [10mbit]\nlinks: { a: { forward: none, backward: none } }\n";

TEST(ParseSweepSpec, ReadsEverything) {
  const auto spec = Parse(R"(
title: Two links
base: run.yaml
set: { train.steps: 20, links.forward: "tah", name: x }
rates: [1gbit, unlimited]
delays: [0ms, 25ms]
jitter: 2ms
loss: 0.1%
links:
  fp32:  { forward: none, backward: none }
  paper: { forward: tah, backward: "fixed:bits=6" }
schedules: [1f1b, link-aware]
variants:
  mbs1: {}
  mbs2: { train.microbatches: 16 }
repeats: 3
warm_up: 4
workers: 8
)");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->title, "Two links");
  EXPECT_EQ(spec->base, "run.yaml");
  EXPECT_THAT(spec->set, ElementsAre("train.steps=20", "links.forward=\"tah\"", "name=x"));
  EXPECT_THAT(spec->rates, ElementsAre(1'000'000'000u, 0u));
  EXPECT_THAT(spec->delays, ElementsAre(absl::ZeroDuration(), absl::Milliseconds(25)));
  EXPECT_EQ(spec->jitter, absl::Milliseconds(2));
  EXPECT_DOUBLE_EQ(spec->loss, 0.001);
  EXPECT_THAT(spec->links, ElementsAre(SweepCodecs{"fp32", {"none", "none"}},
                                       SweepCodecs{"paper", {"tah", "fixed:bits=6"}}));
  EXPECT_THAT(spec->schedules, ElementsAre(ScheduleKind::kOneFOneB, ScheduleKind::kLinkAware));
  EXPECT_THAT(spec->variants, ElementsAre(SweepVariant{"mbs1", {}},
                                          SweepVariant{"mbs2", {"train.microbatches=16"}}));
  EXPECT_EQ(spec->repeats, 3u);
  EXPECT_EQ(spec->warm_up, 4u);
  EXPECT_EQ(spec->workers, 8u);
}

TEST(ParseSweepSpec, HasDefaults) {
  const auto spec = Parse(kLeast);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->delays, ElementsAre(absl::ZeroDuration()));
  EXPECT_TRUE(spec->schedules.empty());
  EXPECT_TRUE(spec->variants.empty());
  EXPECT_EQ(spec->repeats, 1u);
  EXPECT_EQ(spec->warm_up, 2u);
  EXPECT_EQ(spec->workers, std::nullopt);
  EXPECT_EQ(spec->loss, 0);
}

TEST(ParseSweepSpec, OneValueNeedsNoList) {
  const auto spec = Parse(
      "base: a\nrates: 5mbit\ndelays: 1ms\nschedules: gpipe\n"
      "links: { a: { forward: none, backward: none } }\n");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->rates, ElementsAre(5'000'000u));
  EXPECT_THAT(spec->schedules, ElementsAre(ScheduleKind::kGpipe));
}

TEST(ParseSweepSpec, AllErrorsAtOnceWithTheirPlaces) {
  const std::string problem = Problem(R"(base: run.yaml
rates: [10mbit, fast, 10mbit]
delays: [1h]
link: 3
links:
  a: { forward: none }
  b b: { forward: none, backward: none }
  c: { forward: zap, backward: none }
schedules: [1f1b, zigzag]
loss: 3
repeats: 0
)");
  EXPECT_THAT(problem, HasSubstr("sweep.yaml:2:17: rates: rate 'fast': expected"));
  EXPECT_THAT(problem, HasSubstr("sweep.yaml:2:23: rates: '10mbit' is here twice"));
  EXPECT_THAT(problem, HasSubstr("sweep.yaml:3:10: delays: "));
  EXPECT_THAT(problem, HasSubstr("sweep.yaml:4:1: unknown key 'link'; did you mean 'links'?"));
  EXPECT_THAT(problem, HasSubstr("the key 'links.a.backward' is missing"));
  EXPECT_THAT(problem, HasSubstr("sweep.yaml:7:3: links: expected a name of 1 to 32 letters"));
  EXPECT_THAT(problem, HasSubstr("sweep.yaml:8:17: links.c.forward: unknown codec 'zap'"));
  EXPECT_THAT(problem, HasSubstr("sweep.yaml:9:19: schedules: expected one of link-aware, 1f1b"));
  EXPECT_THAT(problem, HasSubstr("sweep.yaml:10:7: loss: "));
  EXPECT_THAT(problem, HasSubstr("sweep.yaml:11:10: repeats: expected a whole number from 1"));
}

TEST(ParseSweepSpec, SaysWhatIsMissing) {
  EXPECT_THAT(Problem(""), HasSubstr("sweep.yaml:1:1: the file is empty"));
  const std::string problem = Problem("title: x\n");
  EXPECT_THAT(problem, HasSubstr("the key 'base' is missing; expected a run file"));
  EXPECT_THAT(problem, HasSubstr("the key 'links' is missing"));
  EXPECT_THAT(Problem("base: [x\n"), HasSubstr("not valid YAML"));
}

TEST(ParseSweepSpec, WithoutRatesNothingShapesLinks) {
  const std::string rest = "links: { a: { forward: none, backward: none } }\n";
  EXPECT_TRUE(Parse(kLeast)->shaped);
  EXPECT_TRUE(Parse("base: a\nrates: unlimited\n" + rest)->shaped);
  const auto spec = Parse("base: a\n" + rest);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->shaped);
  EXPECT_THAT(spec->rates, ElementsAre(0u));
  for (const char* key : {"delays: [5ms]", "jitter: 1ms", "loss: 1%"}) {
    EXPECT_THAT(Problem(fmt::format("base: a\n{}\n{}", key, rest)),
                HasSubstr("without rates nothing shapes the links"));
  }
}

TEST(ParseSweepSpec, TheRunMayBeWithin) {
  const auto spec = Parse(R"(title: x
base:
  # of the run
  name: little

  model: { family: gpt,
    layers: 2 }
# of the sweep
  train:
    steps: 3
links: { a: { forward: none, backward: none } }
)");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->base, "");
  EXPECT_EQ(spec->base_text, R"(


  name: little

  model: { family: gpt,
    layers: 2 }
# of the sweep
  train:
    steps: 3
)");
  EXPECT_THAT(Problem("base: { name: x }\n"),
              HasSubstr("sweep.yaml:1:7: base: expected a run file such as run.yaml, or the run's "
                        "keys, each on a line of its own"));
  EXPECT_THAT(Problem("base: [x]\n"), HasSubstr("sweep.yaml:1:7: base: expected a run file"));
}

TEST(ParseSweepSpec, JitterNeedsADelay) {
  EXPECT_THAT(Problem(std::string(kLeast) + "jitter: 1ms\n"),
              HasSubstr("sweep.yaml:4:9: jitter: there is no delay that could vary"));
  EXPECT_THAT(Problem(std::string(kLeast) + "delays: [0ms, 5ms, 1ms]\njitter: 2ms\n"),
              HasSubstr("sweep.yaml:5:9: jitter: "));
  EXPECT_TRUE(Parse(std::string(kLeast) + "delays: [0ms, 5ms]\njitter: 2ms\n").ok());
}

TEST(ParseSweepSpec, OverridesAreValuesOrListsAsTheRunFileHasThem) {
  const auto spec = Parse(std::string(kLeast) + R"(
set:
  data.text:
    - a
    - b, c
    - "d"
    - '[ef].txt'
  train.optimizer.betas: [0.8, 0.9]
variants: { two: { data.text: [x, y] } }
)");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->variants, ElementsAre(SweepVariant{"two", {"data.text=[x, y]"}}));
  const auto run = ParseRunSpec(
      "name: a\nmodel: { layers: 1, hidden: 8, heads: 1, context: 8 }\ndata: { text: x }\n"
      "train: { steps: 1, microbatches: 1 }\n",
      "run.yaml", spec->set);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(run->data.text, ElementsAre("a", "b, c", "d", "[ef].txt"));
  EXPECT_EQ(run->train.optimizer.beta1, 0.8);
}

TEST(ParseSweepSpec, OverridesAreNoSections) {
  EXPECT_THAT(
      Problem(std::string(kLeast) + "set: { train: { steps: 2 } }\n"),
      HasSubstr("sweep.yaml:4:15: set.train: expected a value or a list of values; a "
                "section's keys are set one by one, such as train.steps: 20, got a mapping"));
  EXPECT_THAT(Problem(std::string(kLeast) + "set: { data.text: [[a]] }\n"),
              HasSubstr("set.data.text: expected a value in the list, got a list"));
  EXPECT_THAT(Problem(std::string(kLeast) + "set: [train.steps]\n"),
              HasSubstr("sweep.yaml:4:6: set: expected keys of the run file"));
}

TEST(Texts, AreExact) {
  EXPECT_EQ(RateText(0), "unlimited");
  EXPECT_EQ(RateText(1'500'000), "1500kbit");
  EXPECT_EQ(RateText(2'000'000'000), "2gbit");
  EXPECT_EQ(RateText(1'001), "1001bit");
  EXPECT_EQ(DelayText(absl::Milliseconds(25)), "25ms");
  EXPECT_EQ(DelayText(absl::Microseconds(1500)), "1500us");
  EXPECT_EQ(DelayText(absl::ZeroDuration()), "0ms");
}

}  // namespace
}  // namespace longhaul
