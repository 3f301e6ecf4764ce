// Pieces of parameters are stepped as whole ones are.
#include "worker/stage/replicas/shard_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "worker/stage/model/init.h"

namespace longhaul::worker {
namespace {

constexpr size_t kRows = 24, kColumns = 10, kElements = kRows * kColumns;

std::vector<float> Numbers(const char* name, uint64_t seed = 1) {
  std::vector<float> values(kElements);
  FillNormal(seed, name, 1, values);
  return values;
}

// Values and gradients that outlive an optimizer of shards [first, next) of them.
struct Owner {
  Owner(const TrainSpec& train, const std::vector<size_t>& borders, uint32_t block_matrices = 0)
      : value(Numbers("value")), gradient(kElements) {
    std::vector<ParameterShard> shards;
    for (size_t k = 0; k + 1 < borders.size(); ++k) {
      const size_t first = borders[k], count = borders[k + 1] - first;
      shards.push_back({.name = "h.0.w",
                        .shape = {kRows, kColumns},
                        .decays = true,
                        .block_matrices = block_matrices,
                        .first = first,
                        .gradient = std::span(gradient).subspan(first, count),
                        .value = std::span(value).subspan(first, count)});
    }
    optimizer = *ShardOptimizer::Create(train, DeviceName(), 1, std::move(shards));
  }
  void Step(uint64_t step) {
    std::ranges::copy(Numbers("gradient", step), gradient.begin());
    ASSERT_TRUE(optimizer->Step(longhaul::Step(step), 1e-2, 0.7).ok());
  }
  std::vector<float> value, gradient;
  std::unique_ptr<ShardOptimizer> optimizer;
};

TrainSpec Spec(OptimizerKind kind) {
  TrainSpec train;
  train.optimizer.kind = kind;
  train.optimizer.weight_decay = 0.1;
  return train;
}

TEST(ShardOptimizer, PiecesBecomeWhatTheWholeBecomes) {
  const TrainSpec train = Spec(OptimizerKind::kAdamW);
  Owner whole(train, {0, kElements}), pieces(train, {0, 17, 64, 65, kElements});
  for (uint64_t step = 1; step <= 4; ++step) {
    whole.Step(step);
    pieces.Step(step);
    ASSERT_EQ(pieces.value, whole.value) << step;
  }
  EXPECT_NE(whole.value, Numbers("value"));
}

TEST(ShardOptimizer, GoesOnFromTheMomentsOfOtherPieces) {
  const TrainSpec train = Spec(OptimizerKind::kAdamW);
  Owner before(train, {0, 100, kElements}), after(train, {0, 31, 128, kElements});
  before.Step(1);
  before.Step(2);
  const auto moments = before.optimizer->Moments();
  ASSERT_TRUE(moments.ok());
  EXPECT_EQ(moments->size(), 4u);
  EXPECT_TRUE(std::ranges::any_of(
      *moments, [](const NamedArray& array) { return array.name == "h.0.w@100.exp_avg_sq"; }));
  ASSERT_TRUE(after.optimizer->Restore(ArrayPieces(*moments)).ok());
  after.value = before.value;
  before.Step(3);
  after.Step(3);
  EXPECT_EQ(after.value, before.value);
  EXPECT_EQ(after.optimizer->Restore(ArrayPieces({})).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ShardOptimizer, MuonHasWholeMatrices) {
  const TrainSpec train = Spec(OptimizerKind::kMuon);
  Owner matrix(train, {0, kElements}, /*block_matrices=*/1);
  const std::vector<float> begin = matrix.value;
  matrix.Step(1);
  // Orthogonalized: all that moved moved alike, whatever the size of its gradient.
  double squares = 0;
  for (size_t k = 0; k < kElements; ++k) {
    const double moved = matrix.value[k] - begin[k] * (1 - 1e-2 * 0.1);
    squares += moved * moved;
  }
  EXPECT_NEAR(std::sqrt(squares / kElements), 1e-2 * 0.2 * std::sqrt(kRows * 1.0 / kRows), 1e-3);
  EXPECT_EQ((*matrix.optimizer->Moments())[0].name, "h.0.w@0.momentum");
}

}  // namespace
}  // namespace longhaul::worker
