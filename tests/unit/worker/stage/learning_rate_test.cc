#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

TrainSpec Train(const char* kind, uint64_t warmup, uint64_t steps) {
  TrainSpec train;
  train.steps = steps;
  train.optimizer.lr = 1.0;
  train.schedule.kind = kind;
  train.schedule.warmup = warmup;
  train.schedule.final_ratio = 0.1;
  return train;
}

TEST(LearningRate, WarmsUpLinearly) {
  const TrainSpec train = Train("cosine", 10, 110);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(1)), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(5)), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(10)), 1.0);
}

TEST(LearningRate, FollowsHalfACosineToTheFinalRatio) {
  const TrainSpec train = Train("cosine", 10, 110);
  EXPECT_NEAR(LearningRate(train, Step(60)), 0.55, 1e-12);
  EXPECT_NEAR(LearningRate(train, Step(35)), 0.1 + 0.45 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(LearningRate(train, Step(110)), 0.1, 1e-12);
  EXPECT_NEAR(LearningRate(train, Step(500)), 0.1, 1e-12);
}

TEST(LearningRate, ConstantStaysAfterWarmUp) {
  const TrainSpec train = Train("constant", 4, 10);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(2)), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(train, Step(10)), 1.0);
}

TEST(LearningRate, NoWarmUpAndAllWarmUp) {
  EXPECT_NEAR(LearningRate(Train("cosine", 0, 1), Step(1)), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(LearningRate(Train("constant", 0, 5), Step(1)), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(Train("cosine", 8, 4), Step(4)), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(Train("cosine", 8, 8), Step(9)), 1.0);
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
