// Models whose head reads the embedding's matrix, in one stage and in two.
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/stage/stage_of.h"

namespace longhaul::worker {
namespace {

TEST_P(StageOf, TiedModelsShareTheEmbeddingWithTheHead) {
  StageOptions options = WholeModel();
  const uint64_t untied = Make(options)->parameter_count();
  options.model.tied = true;
  const auto stage = Make(options);
  EXPECT_EQ(stage->parameter_count(), untied - 256 * kHidden);
  EXPECT_EQ(Find(stage->Snapshot()->parameters, "lm_head.weight"), nullptr);
  Train(*stage, 1);
}

TEST_P(StageOf, TheLastStageOfATiedModelHoldsTheEmbeddingsMatrixToo) {
  StageOptions options = WholeModel();
  options.model.tied = true;
  const StageSnapshot whole = *Make(options)->Snapshot();
  StageOptions last = options;
  last.first = false;
  last.first_layer = 1;
  last.layers = options.layers - 1;
  const StageSnapshot held = *Make(last)->Snapshot();
  EXPECT_EQ(held.parameters.back().name, whole.parameters.front().name);
  EXPECT_EQ(held.parameters.back().values, whole.parameters.front().values);
  // From a checkpoint of one stage.
  last.train.seed = 7;
  const auto restored = Make(last);
  ASSERT_TRUE(restored->Restore(whole).ok());
  EXPECT_EQ(restored->Snapshot()->parameters.back().values, whole.parameters.front().values);
}

std::vector<int32_t> Numbers(uint32_t count) {
  std::vector<int32_t> rows(count);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  return rows;
}

// Each end adds the other's gradient, row by row.
void SumTied(Stage& one, Stage& other) {
  TiedMatrix &a = *one.tied_matrix(), &b = *other.tied_matrix();
  const std::vector<int32_t> rows = Numbers(a.rows());
  std::vector<float> of_a(rows.size() * a.channels()), of_b(of_a.size());
  // All in one piece; then some with gaps between them, and all, have the same bits.
  bool summed = false;
  for (const std::vector<int32_t>& some : {rows, std::vector<int32_t>{0, 5, 255}, rows}) {
    const size_t values = some.size() * a.channels();
    const std::span<float> from_a = std::span(of_a).first(values);
    const std::span<float> from_b = std::span(of_b).first(values);
    ASSERT_EQ(a.ReadGradient(some, from_a), absl::OkStatus());
    ASSERT_EQ(b.ReadGradient(some, from_b), absl::OkStatus());
    if (std::exchange(summed, true)) {
      EXPECT_EQ(std::memcmp(from_a.data(), from_b.data(), from_a.size_bytes()), 0);
      continue;
    }
    ASSERT_EQ(a.AddToGradient(some, from_b), absl::OkStatus());
    ASSERT_EQ(b.AddToGradient(some, from_a), absl::OkStatus());
  }
}

TEST_P(StageOf, ATiedMatrixInTwoStagesLearnsAsInOne) {
  StageOptions options = WholeModel();
  options.model.tied = true;
  const auto whole = Make(options);
  EXPECT_EQ(whole->tied_matrix(), nullptr);
  StageOptions part = options;
  part.layers = 1;
  part.last = false;
  const auto first = Make(part);
  part.first = false;
  part.last = true;
  part.first_layer = 1;
  const auto last = Make(part);
  for (uint64_t step = 1; step <= 5; ++step) {
    double loss = 0, loss_of_parts = 0;
    for (uint32_t m = 0; m < 2; ++m) {
      const Example example(static_cast<int>(step * 2 + m));
      ASSERT_TRUE(whole->Forward(Microbatch(m), example.input()).ok());
      loss += whole->Loss(Microbatch(m)).value();
      ASSERT_TRUE(whole->Backward(Microbatch(m), {}).ok());
      const auto hidden = first->Forward(Microbatch(m), example.input());
      ASSERT_TRUE(hidden.ok()) << hidden.status();
      ASSERT_TRUE(
          last->Forward(Microbatch(m), {example.ids, (*hidden)->view, example.targets}).ok());
      loss_of_parts += last->Loss(Microbatch(m)).value();
      const auto gradient = last->Backward(Microbatch(m), {});
      ASSERT_TRUE(gradient.ok()) << gradient.status();
      ASSERT_TRUE(first->Backward(Microbatch(m), (*gradient)->view).ok());
    }
    EXPECT_NEAR(loss, loss_of_parts, 2e-5) << "step " << step;
    SumTied(*first, *last);
    const double norm = whole->AddSquaredGradientNorm(0).value().sum;
    const double of_parts =
        first->AddSquaredGradientNorm(last->AddSquaredGradientNorm(0).value().sum).value().sum;
    EXPECT_NEAR(norm / of_parts, 1, 1e-4) << "the matrix counts once";
    for (Stage* stage : {whole.get(), first.get(), last.get()}) {
      ASSERT_EQ(stage->OptimizerStep(Step(step), 1e-2, 0.5), absl::OkStatus());
    }
  }
  const StageSnapshot above = *first->Snapshot(), below = *last->Snapshot();
  const std::string& name = first->tied_matrix()->name();
  EXPECT_EQ(Find(above.parameters, name)->values, Find(below.parameters, name)->values);
  for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
    EXPECT_EQ(Find(above.moments, name + moment)->values,
              Find(below.moments, name + moment)->values);
  }
}

}  // namespace
}  // namespace longhaul::worker
