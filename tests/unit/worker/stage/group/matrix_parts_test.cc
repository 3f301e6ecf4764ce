// Parts of matrices are those that run/model/share.h says, and make the whole again.
#include "worker/stage/group/matrix_parts.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/model/family.h"

namespace longhaul::worker {
namespace {

ModelSpec SpecOf(ModelFamily family) {
  ModelSpec spec;
  spec.family = family;
  spec.layers = 1;
  spec.hidden = 48;
  spec.heads = 6;
  spec.context = 8;
  if (family != ModelFamily::kGpt) {
    spec.kv_heads = 3;
    spec.intermediate = 60;
  }
  if (family == ModelFamily::kMoe) {
    spec.experts = 6;
    spec.experts_per_token = 2;
    spec.expert_intermediate = 24;
  }
  return spec;
}

TEST(MatrixParts, AreTheSharesOfRanksAndMakeTheWhole) {
  size_t divided = 0, whole_on_ranks = 0;
  for (const ModelFamily family : {ModelFamily::kGpt, ModelFamily::kLlama, ModelFamily::kMoe}) {
    const ModelSpec spec = SpecOf(family);
    for (const uint32_t count : {2u, 3u, 6u}) {
      const model::Ranks ranks{.count = count};
      for (const model::Parameter& parameter :
           model::ParametersOf(spec, /*vocabulary_rows=*/50, /*embedding=*/false, /*head=*/false)) {
        // Three heads of keys and values are no half each.
        if (!model::ShareOf(spec, parameter, 0, ranks).ok()) continue;
        const auto parts = MatrixParts::Of(spec, parameter, ranks);
        const bool is_divided =
            parameter.shape.is_matrix() && (parameter.split.along == model::Along::kRows ||
                                            parameter.split.along == model::Along::kColumns);
        ASSERT_EQ(parts != nullptr, is_divided) << parameter.name;
        ++(is_divided ? divided : whole_on_ranks);
        if (!parts) continue;
        const at::Tensor whole = at::arange(parts->rows() * parts->columns(), at::kFloat)
                                     .view({parts->rows(), parts->columns()});
        at::Tensor again = at::full(whole.sizes(), -1.0, at::kFloat);
        for (uint32_t rank = 0; rank < count; ++rank) {
          const at::Tensor part = parts->Cut(whole, rank);
          EXPECT_EQ(part.numel(), parts->ElementsOf(rank));
          std::vector<float> expected;
          const model::Share share = *model::ShareOf(spec, parameter, rank, ranks);
          for (const auto& [first, length] : model::StretchesOf(parameter, share)) {
            for (uint64_t i = 0; i < length; ++i) expected.push_back(static_cast<float>(first + i));
          }
          const auto* const values = part.const_data_ptr<float>();
          EXPECT_EQ(std::vector<float>(values, values + part.numel()), expected)
              << parameter.name << " of rank " << rank;
          parts->Place(part.reshape({-1}), rank, again);
        }
        EXPECT_TRUE(again.equal(whole)) << parameter.name;
      }
    }
  }
  EXPECT_GT(divided, 20u);
  EXPECT_GT(whole_on_ranks, 20u);
}

// Where more ranks than heads hold keys and values, several hold the same rows.
TEST(MatrixParts, MayBeHeldBySeveralRanks) {
  ModelSpec spec = SpecOf(ModelFamily::kLlama);
  spec.kv_heads = 2;
  spec.heads = 4;
  size_t repeated = 0;
  for (const model::Parameter& parameter : model::ParametersOf(spec, 50, false, false)) {
    const auto parts = MatrixParts::Of(spec, parameter, {.count = 4});
    if (!parts || parameter.split.unit != model::Unit::kKvHead) continue;
    ++repeated;
    EXPECT_EQ(2 * parts->ElementsOf(0), parts->rows() * parts->columns()) << parameter.name;
  }
  EXPECT_EQ(repeated, 2u);
  // One head is whole on each of them.
  spec.kv_heads = 1;
  for (const model::Parameter& parameter : model::ParametersOf(spec, 50, false, false)) {
    if (parameter.split.unit != model::Unit::kKvHead || !parameter.shape.is_matrix()) continue;
    EXPECT_EQ(MatrixParts::Of(spec, parameter, {.count = 4}), nullptr) << parameter.name;
  }
}

}  // namespace
}  // namespace longhaul::worker
