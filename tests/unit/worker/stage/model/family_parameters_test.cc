// The stages' parameters are those of the families' descriptors.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "run/model/family.h"
#include "worker/stage/model/init.h"
#include "worker/stage/model/model.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;

StageOptions Small(ModelFamily family) {
  StageOptions options;
  options.model.family = family;
  options.model.layers = options.layers = 3;
  options.model.hidden = 16;
  options.model.heads = 4;
  options.model.kv_heads = 2;
  options.model.intermediate = 20;
  options.model.experts = 3;
  options.model.experts_per_token = 2;
  options.model.expert_intermediate = 12;
  options.model.shared_intermediate = 10;
  options.model.context = 8;
  options.train.microbatches = 1;
  return options;
}

struct Described {
  std::string name;
  std::vector<int64_t> sizes;
  bool decays;
  friend bool operator==(const Described&, const Described&) = default;
  friend void PrintTo(const Described& one, std::ostream* out) {
    *out << fmt::format("{} ({}) {}", one.name, fmt::join(one.sizes, ", "), one.decays);
  }
};

std::vector<Described> OfTheModel(const StageOptions& options) {
  std::vector<Described> all;
  const auto made = Model::Create(options);
  for (const Parameter& parameter : made->parameters()) {
    all.push_back({parameter.name, parameter.value.sizes().vec(), parameter.decays});
  }
  return all;
}

std::vector<Described> OfTheDescriptor(const StageOptions& options) {
  std::vector<Described> all;
  const model::Part part{options.first_layer, options.layers, options.first, options.last};
  for (const model::PlacedParameter& placed :
       model::ParametersOf(options.model, options.vocabulary_rows(), part)) {
    const auto [rows, columns] = placed.parameter.shape;
    std::vector<int64_t> sizes = {rows};
    if (columns > 0) sizes.push_back(columns);
    all.push_back({placed.Name(), sizes, placed.parameter.decays()});
  }
  return all;
}

class FamilyParameters : public ::testing::TestWithParam<ModelFamily> {};
INSTANTIATE_TEST_SUITE_P(Families, FamilyParameters,
                         ::testing::Values(ModelFamily::kGpt, ModelFamily::kLlama,
                                           ModelFamily::kMoe),
                         [](const auto& test) { return std::string(ToString(test.param)); });

TEST_P(FamilyParameters, AreTheDescriptorsForEveryPartAndOption) {
  for (const bool bias : {false, true}) {
    for (const std::optional<uint32_t> vocabulary : {std::optional<uint32_t>(), {300u}}) {
      StageOptions options = Small(GetParam());
      options.model.qkv_bias = bias;
      options.model.balance = bias ? Balance::kBias : Balance::kLoss;
      options.model.vocabulary = vocabulary;
      const auto expect_same = [&](uint32_t first_layer, uint32_t layers, bool first, bool last) {
        options.first_layer = first_layer;
        options.layers = layers;
        options.first = first;
        options.last = last;
        const std::vector<Described> made = OfTheModel(options);
        EXPECT_EQ(made, OfTheDescriptor(options));
        EXPECT_FALSE(made.empty());
      };
      for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
        options.train.dtype = dtype;
        options.model.tied = false;
        expect_same(0, 0, true, false);
        expect_same(0, 1, true, false);
        expect_same(1, 1, false, false);
        expect_same(2, 1, false, true);
        expect_same(3, 0, false, true);
        expect_same(0, 3, true, true);
        options.model.tied = true;
        expect_same(0, 1, true, false);
        expect_same(1, 1, false, false);
        expect_same(2, 1, false, true);
        expect_same(3, 0, false, true);
        expect_same(0, 3, true, true);
      }
    }
  }
}

TEST_P(FamilyParameters, BeginWithNoiseThatTheNameSeeds) {
  StageOptions options = Small(GetParam());
  options.model.qkv_bias = true;
  options.train.seed = 7;
  const auto made = Model::Create(options);
  for (const Parameter& parameter : made->parameters()) {
    const size_t count = static_cast<size_t>(parameter.value.numel());
    const bool is_norm = parameter.name.find("ln_") != std::string::npos ||
                         parameter.name.find("norm") != std::string::npos;
    std::vector<float> expected(count, is_norm && !parameter.name.ends_with("bias") ? 1.0f : 0.0f);
    if (parameter.value.dim() == 2) {
      // Two terms of each of three blocks are added to the residual stream.
      const bool residual = parameter.name.ends_with(".proj.weight") ||
                            parameter.name.ends_with("o_proj.weight") ||
                            parameter.name.ends_with("down_proj.weight");
      FillNormal(7, parameter.name, residual ? 0.02 / std::sqrt(6.0) : 0.02, expected);
    }
    const float* const values = parameter.value.const_data_ptr<float>();
    EXPECT_EQ(std::vector<float>(values, values + count), expected) << parameter.name;
  }
}

// What checkpoints of earlier versions have.
TEST(Gpt, ParametersKeepTheirNamesAndShapes) {
  StageOptions options = Small(ModelFamily::kGpt);
  options.first_layer = 2;
  options.layers = 1;
  std::vector<std::string> names;
  for (const Described& one : OfTheModel(options)) {
    names.push_back(fmt::format("{} ({})", one.name, fmt::join(one.sizes, ", ")));
  }
  EXPECT_THAT(
      names,
      ElementsAre("wte (256, 16)", "wpe (8, 16)", "h.2.ln_1.weight (16)", "h.2.ln_1.bias (16)",
                  "h.2.attn.qkv.weight (48, 16)", "h.2.attn.qkv.bias (48)",
                  "h.2.attn.proj.weight (16, 16)", "h.2.attn.proj.bias (16)",
                  "h.2.ln_2.weight (16)", "h.2.ln_2.bias (16)", "h.2.mlp.fc.weight (64, 16)",
                  "h.2.mlp.fc.bias (64)", "h.2.mlp.proj.weight (16, 64)", "h.2.mlp.proj.bias (16)",
                  "ln_f.weight (16)", "ln_f.bias (16)", "lm_head.weight (256, 16)"));
}

}  // namespace
}  // namespace longhaul::worker
