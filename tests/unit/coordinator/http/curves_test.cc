// Curves with few points: what a screen must not lose, and what is read of a store.
#include "coordinator/http/curves.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/unit/coordinator/http/fake_source.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;

Curve RandomCurve(size_t points, std::mt19937* random) {
  Curve curve{"loss", {}, {}};
  std::uniform_int_distribution<uint64_t> gap(1, 5);
  std::normal_distribution<double> value;
  uint64_t step = gap(*random);
  for (size_t i = 0; i < points; ++i) {
    curve.steps.push_back(step);
    curve.values.push_back(value(*random));
    step += gap(*random);
  }
  return curve;
}

// A sample of any curve and window has few points. All are the curve's and in order, and both ends
// and both extremes of the window are among them.
TEST(SampleTest, KeepsEndsAndExtremesOfAnyCurve) {
  std::mt19937 random(7);
  for (const size_t size : {0, 1, 2, 3, 4, 5, 17, 1999, 2000, 2001, 10'000, 100'000}) {
    for (const size_t points : {4, 5, 100, 2000}) {
      const Curve curve = RandomCurve(size, &random);
      const uint64_t end = size == 0 ? 10 : curve.steps.back();
      const CurveWindow window{.first = end / 4, .last = end - end / 4, .points = points};
      const Curve sample = Sample(curve, window);
      ASSERT_EQ(sample.steps.size(), sample.values.size());
      ASSERT_LE(sample.steps.size(), points);
      ASSERT_TRUE(std::ranges::is_sorted(sample.steps, std::ranges::less_equal()) ||
                  sample.steps.size() < 2);
      Curve inside{"loss", {}, {}};
      for (size_t i = 0; i < size; ++i) {
        if (curve.steps[i] < window.first || curve.steps[i] > window.last) continue;
        inside.steps.push_back(curve.steps[i]);
        inside.values.push_back(curve.values[i]);
      }
      ASSERT_EQ(sample.steps.empty(), inside.steps.empty());
      if (inside.steps.empty()) continue;
      ASSERT_EQ(sample.steps.front(), inside.steps.front());
      ASSERT_EQ(sample.steps.back(), inside.steps.back());
      ASSERT_EQ(std::ranges::max(sample.values), std::ranges::max(inside.values));
      ASSERT_EQ(std::ranges::min(sample.values), std::ranges::min(inside.values));
      for (size_t i = 0; i < sample.steps.size(); ++i) {
        const auto at = std::ranges::lower_bound(inside.steps, sample.steps[i]);
        ASSERT_EQ(*at, sample.steps[i]);
        ASSERT_EQ(inside.values[static_cast<size_t>(at - inside.steps.begin())], sample.values[i]);
      }
      if (inside.steps.size() <= points) {
        ASSERT_EQ(sample.steps, inside.steps);
      }
    }
  }
}

TEST(SampleTest, ASpikeOfOneStepIsSeenAmongAHundredThousand) {
  Curve curve{"loss", {}, {}};
  for (uint64_t step = 1; step <= 100'000; ++step) {
    curve.steps.push_back(step);
    curve.values.push_back(step == 77'777 ? 9.0 : 2.0);
  }
  const Curve sample = Sample(curve, {});
  const auto spike = std::ranges::find(sample.steps, 77'777u);
  ASSERT_NE(spike, sample.steps.end());
  EXPECT_EQ(sample.values[static_cast<size_t>(spike - sample.steps.begin())], 9.0);
}

class CurveBookTest : public ::testing::Test {
 protected:
  Curve Loss() {
    const auto curves = book_.Of(source_.run(), {});
    EXPECT_TRUE(curves.ok()) << curves.status();
    for (const Curve& curve : *curves) {
      if (curve.name == "loss") return curve;
    }
    return {};
  }

  FakeSource source_;
  CurveBook book_{[this](const RunId& run, uint64_t step, size_t limit) {
    return source_.Steps(run, step, limit);
  }};
};

TEST_F(CurveBookTest, ReadsOnlyWhatIsNew) {
  for (int i = 0; i < 5000; ++i) source_.AddStep(i);
  EXPECT_EQ(Loss().steps.back(), 5000u);
  const size_t read = source_.rows_read_;
  EXPECT_EQ(read, 5000u);
  source_.AddStep(7);
  EXPECT_EQ(Loss().steps.back(), 5001u);
  EXPECT_LE(source_.rows_read_ - read, 20u);
}

TEST_F(CurveBookTest, AValidationThatComesLaterIsSeen) {
  v1::StepRecord& row = source_.AddStep(3);
  Loss();
  row.set_has_validation(true);
  row.set_validation_loss(4);
  const auto curves = book_.Of(source_.run(), {});
  ASSERT_TRUE(curves.ok());
  EXPECT_TRUE(std::ranges::any_of(*curves, [](const Curve& curve) {
    return curve.name == "validation_loss" && curve.steps == std::vector<uint64_t>{1};
  }));
}

// A run that goes back to a checkpoint trains its steps again: what it gave up is not shown.
TEST_F(CurveBookTest, StepsThatWereGivenUpGoAndComeBackAnew) {
  for (int i = 0; i < 6; ++i) source_.AddStep(1);
  EXPECT_EQ(Loss().steps.size(), 6u);
  source_.GoBackTo(2);
  EXPECT_THAT(Loss().steps, ElementsAre(1, 2));
  source_.AddStep(5);
  EXPECT_THAT(Loss().values, ElementsAre(1, 1, 5));
  for (int i = 0; i < 4; ++i) source_.AddStep(6);
  EXPECT_THAT(Loss().values, ElementsAre(1, 1, 5, 6, 6, 6, 6));
}

TEST_F(CurveBookTest, WhatIsNotFiniteIsLeftOut) {
  source_.AddStep(1);
  source_.AddStep(std::nan(""));
  source_.AddStep(INFINITY);
  source_.AddStep(2);
  EXPECT_THAT(Loss().steps, ElementsAre(1, 4));
}

TEST_F(CurveBookTest, MoreRunsThanAreKeptAreAnsweredYet) {
  source_.AddStep(1);
  v1::RunStatus run = source_.run();
  for (size_t i = 0; i < 3 * CurveBook::kRuns; ++i) {
    run.set_run_id("run" + std::to_string(i));
    const auto curves = book_.Of(run, {});
    ASSERT_TRUE(curves.ok());
    EXPECT_EQ(curves->front().steps.size(), 1u);
  }
}

TEST_F(CurveBookTest, JsonHasEveryCurve) {
  source_.AddStep(2.125);
  const auto json = nlohmann::json::parse(CurvesJson(source_.run(), *book_.Of(source_.run(), {})));
  EXPECT_EQ(json["run"], "tiny-abcdef");
  EXPECT_EQ(json["step"], 1);
  EXPECT_EQ(json["curves"]["loss"]["steps"], nlohmann::json({1}));
  EXPECT_EQ(json["curves"]["loss"]["values"], nlohmann::json({2.125}));
  EXPECT_FALSE(json["curves"].contains("validation_loss"));
}

}  // namespace
}  // namespace longhaul::coordinator
