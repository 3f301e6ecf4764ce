#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

TrainSpec Train(LrScheduleKind kind, uint64_t warmup, uint64_t steps) {
  TrainSpec train;
  train.steps = steps;
  train.optimizer.lr = 1.0;
  train.schedule.kind = kind;
  train.schedule.warmup = warmup;
  train.schedule.final_ratio = 0.1;
  return train;
}

TEST(LearningRate, WarmsUpLinearly) {
  const TrainSpec train = Train(LrScheduleKind::kCosine, 10, 110);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(1)), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(5)), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(10)), 1.0);
}

TEST(LearningRate, FollowsHalfACosineToTheFinalRatio) {
  const TrainSpec train = Train(LrScheduleKind::kCosine, 10, 110);
  EXPECT_NEAR(LearningRate(train, Step(60)), 0.55, 1e-12);
  EXPECT_NEAR(LearningRate(train, Step(35)), 0.1 + 0.45 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(LearningRate(train, Step(110)), 0.1, 1e-12);
  EXPECT_NEAR(LearningRate(train, Step(500)), 0.1, 1e-12);
}

TEST(LearningRate, ConstantStaysAfterWarmUp) {
  const TrainSpec train = Train(LrScheduleKind::kConstant, 4, 10);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(2)), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(10)), 1.0);
}

// A line's points are as far apart as its first and last say; a cosine's next point follows from
// its last by the angle that lies between them (PyTorch's recurrence).
TEST(LearningRate, EqualsSumsOfItsSteps) {
  constexpr uint64_t kSteps = 200, kWarmup = 25, kDecay = 50;
  for (const LrScheduleKind kind : {LrScheduleKind::kConstant, LrScheduleKind::kCosine,
                                    LrScheduleKind::kLinear, LrScheduleKind::kWsd}) {
    TrainSpec train = Train(kind, kWarmup, kSteps);
    train.optimizer.lr = 3e-3;
    train.schedule.final_ratio = 0.04;
    train.schedule.decay = 0.25;
    const double low = 0.04 * 3e-3;
    double expected = 0;
    for (uint64_t step = 1; step <= kSteps + 5; ++step) {
      if (step <= kWarmup) {
        expected += 3e-3 / kWarmup;
      } else if (step > kSteps) {
        // It stays.
      } else if (kind == LrScheduleKind::kCosine) {
        const auto angle = [](uint64_t at) {
          return std::numbers::pi * static_cast<double>(at - kWarmup) / (kSteps - kWarmup);
        };
        expected =
            low + (expected - low) * (1 + std::cos(angle(step))) / (1 + std::cos(angle(step - 1)));
      } else if (kind == LrScheduleKind::kLinear) {
        expected -= (3e-3 - low) / (kSteps - kWarmup);
      } else if (kind == LrScheduleKind::kWsd && step > kSteps - kDecay) {
        expected -= (3e-3 - low) / kDecay;
      }
      ASSERT_NEAR(LearningRate(train, Step(step)), expected, 1e-12)
          << ToString(kind) << " at " << step;
    }
  }
}

// By hand.
TEST(LearningRate, LinesOfTenSteps) {
  const auto all = [](LrScheduleKind kind, uint64_t warmup, double decay) {
    TrainSpec train = Train(kind, warmup, 10);
    train.schedule.final_ratio = 0;
    train.schedule.decay = decay;
    std::vector<double> rates;
    for (uint64_t step = 1; step <= 10; ++step) rates.push_back(LearningRate(train, Step(step)));
    return rates;
  };
  using ::testing::DoubleNear;
  using ::testing::Pointwise;
  EXPECT_THAT(
      all(LrScheduleKind::kLinear, 2, 0.2),
      Pointwise(DoubleNear(1e-15), {0.5, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0}));
  EXPECT_THAT(all(LrScheduleKind::kWsd, 2, 0.4),
              Pointwise(DoubleNear(1e-15), {0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0}));
  EXPECT_THAT(all(LrScheduleKind::kWsd, 0, 1.0),
              Pointwise(DoubleNear(1e-15), {0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0}));
  // A share of less than half a step.
  EXPECT_THAT(all(LrScheduleKind::kWsd, 0, 0.04),
              Pointwise(DoubleNear(1e-15), {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}));
}

TEST(LearningRate, NoWarmUpAndAllWarmUp) {
  EXPECT_NEAR(LearningRate(Train(LrScheduleKind::kCosine, 0, 1), Step(1)), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(LearningRate(Train(LrScheduleKind::kConstant, 0, 5), Step(1)), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(Train(LrScheduleKind::kCosine, 8, 4), Step(4)), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(Train(LrScheduleKind::kCosine, 8, 8), Step(9)), 1.0);
}

TEST(ClipScale, ScalesOnlyWhatIsTooLong) {
  EXPECT_DOUBLE_EQ(ClipScale(1.0, 0.25), 1.0);
  EXPECT_DOUBLE_EQ(ClipScale(1.0, 16.0), 1.0 / (4.0 + 1e-6));
  EXPECT_DOUBLE_EQ(ClipScale(0, 1e12), 1.0);
  EXPECT_DOUBLE_EQ(ClipScale(1.0, 0), 1.0);
  EXPECT_TRUE(std::isnan(ClipScale(1.0, std::nan(""))));
  EXPECT_EQ(ClipScale(1.0, std::numeric_limits<double>::infinity()), 0.0);
}

}  // namespace
}  // namespace longhaul::worker
