#include "run/model/lora.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "run/model/share.h"

namespace longhaul::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LoraOf : public ::testing::TestWithParam<ModelFamily> {
 protected:
  static ModelSpec Tiny(ModelFamily family = GetParam()) {
    ModelSpec spec;
    spec.family = family;
    spec.layers = 3;
    spec.hidden = 24;
    spec.heads = 6;
    spec.kv_heads = 2;
    spec.context = 10;
    spec.intermediate = 40;
    spec.qkv_bias = true;
    spec.experts = 4;
    spec.experts_per_token = 2;
    spec.expert_intermediate = 16;
    return spec;
  }
  static ModelSpec Adapted(std::vector<std::string> targets, ModelFamily family = GetParam()) {
    ModelSpec spec = Tiny(family);
    spec.lora = LoraSpec{.rank = 4, .alpha = 8, .targets = std::move(targets)};
    return spec;
  }
  static Part WholeOf(const ModelSpec& spec) {
    return {.first_layer = 0, .layers = spec.layers, .embedding = true, .head = true};
  }
  static std::vector<std::string> Trained(const ModelSpec& spec, const Part& part) {
    std::vector<std::string> names;
    for (const PlacedParameter& placed : ParametersOf(spec, 300, part)) {
      const Shape& shape = placed.parameter.shape;
      if (placed.parameter.frozen) continue;
      names.push_back(fmt::format("{} ({}, {})", placed.Name(), shape.rows, shape.columns));
    }
    return names;
  }
};
INSTANTIATE_TEST_SUITE_P(Families, LoraOf,
                         ::testing::Values(ModelFamily::kGpt, ModelFamily::kLlama,
                                           ModelFamily::kMoe),
                         [](const auto& test) { return std::string(ToString(test.param)); });

TEST_P(LoraOf, WithoutItNothingIsFrozen) {
  for (const PlacedParameter& placed : ParametersOf(Tiny(), 300, WholeOf(Tiny()))) {
    EXPECT_FALSE(placed.parameter.frozen || placed.parameter.adapter) << placed.Name();
  }
}

// All matrices of blocks that could be targets, whichever are; no others, and no vectors.
TEST_P(LoraOf, MatricesOfBlocksAreQuantized) {
  const std::vector<std::string> all = TargetsOf(Tiny());
  ModelSpec spec = Adapted({all.front()});
  for (const PlacedParameter& placed : ParametersOf(spec, 300, WholeOf(spec))) {
    EXPECT_FALSE(placed.parameter.is_quantized()) << placed.Name();
  }
  spec.lora->quantize_base = QuantizeBase::kNf4;
  for (const PlacedParameter& placed : ParametersOf(spec, 300, WholeOf(spec))) {
    const Parameter& parameter = placed.parameter;
    const bool is_matrix = parameter.frozen && parameter.in_product && parameter.is_block_matrix();
    EXPECT_EQ(parameter.quantized, is_matrix ? QuantizeBase::kNf4 : QuantizeBase::kNone)
        << placed.Name();
  }
}

TEST_P(LoraOf, AdaptersAreAllThatIsTrained) {
  const ModelSpec spec = Adapted(TargetsOf(Tiny()));
  std::vector<std::string> published;
  for (const PlacedParameter& placed : ParametersOf(spec, 300, WholeOf(spec))) {
    EXPECT_NE(placed.parameter.frozen, placed.parameter.adapter) << placed.Name();
    if (placed.parameter.frozen) published.push_back(placed.Name());
  }
  std::vector<std::string> expected;
  for (const PlacedParameter& placed : ParametersOf(Tiny(), 300, WholeOf(spec))) {
    expected.push_back(placed.Name());
  }
  EXPECT_EQ(published, expected);
}

TEST(Lora, NamesAndShapesAreThoseOfPeft) {
  struct : LoraOf {
    using LoraOf::Adapted;
    using LoraOf::Trained;
    void TestBody() override {}
  } lora;
  const ModelSpec llama = lora.Adapted({"q_proj", "v_proj", "down_proj"}, ModelFamily::kLlama);
  const Part block = {.first_layer = 2, .layers = 1};
  EXPECT_THAT(lora.Trained(llama, block),
              ElementsAre("model.layers.2.self_attn.q_proj.lora_A.weight (4, 24)",
                          "model.layers.2.self_attn.q_proj.lora_B.weight (24, 4)",
                          "model.layers.2.self_attn.v_proj.lora_A.weight (4, 24)",
                          "model.layers.2.self_attn.v_proj.lora_B.weight (8, 4)",
                          "model.layers.2.mlp.down_proj.lora_A.weight (4, 40)",
                          "model.layers.2.mlp.down_proj.lora_B.weight (24, 4)"));
  // PEFT's target c_proj is both; its A and B are no Conv1D's.
  const ModelSpec gpt = lora.Adapted({"c_attn", "c_proj"}, ModelFamily::kGpt);
  EXPECT_THAT(
      lora.Trained(gpt, block),
      ElementsAre("h.2.attn.qkv.lora_A.weight (4, 24)", "h.2.attn.qkv.lora_B.weight (72, 4)",
                  "h.2.attn.proj.lora_A.weight (4, 24)", "h.2.attn.proj.lora_B.weight (24, 4)",
                  "h.2.mlp.proj.lora_A.weight (4, 96)", "h.2.mlp.proj.lora_B.weight (24, 4)"));
  std::vector<std::string> published;
  for (const PlacedParameter& placed : ParametersOf(gpt, 300, block)) {
    if (!placed.parameter.adapter) continue;
    EXPECT_FALSE(placed.parameter.published_transposed);
    published.push_back(placed.PublishedName());
  }
  EXPECT_EQ(published[0], "base_model.model.transformer.h.2.attn.c_attn.lora_A.weight");
  EXPECT_EQ(published[5], "base_model.model.transformer.h.2.mlp.c_proj.lora_B.weight");
  const auto of_llama = ParametersOf(llama, 300, block);
  // Behind the bias of its module.
  EXPECT_EQ(of_llama[2].PublishedName(), "model.layers.2.self_attn.q_proj.bias");
  EXPECT_EQ(of_llama[3].PublishedName(),
            "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight");
}

TEST(Lora, TargetsAreEndsOfModulesNames) {
  ModelSpec spec;
  spec.layers = 1;
  spec.hidden = 8;
  spec.heads = 2;
  spec.context = 4;
  EXPECT_THAT(TargetsOf(spec), ElementsAre("c_attn", "c_proj", "c_fc"));
  for (const char* target : {"c_attn", "c_proj", "mlp.c_proj", "attn.c_proj"}) {
    EXPECT_TRUE(IsModule(spec, target)) << target;
  }
  for (const char* target :
       {"", "proj", "qkv", "lm_head", "wte", "ln_1", "c_attn.weight", "q_proj"}) {
    EXPECT_FALSE(IsModule(spec, target)) << target;
  }
  spec.family = ModelFamily::kLlama;
  spec.kv_heads = 2;
  spec.intermediate = 8;
  EXPECT_THAT(TargetsOf(spec), ElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                           "up_proj", "down_proj"));
  // A router has none.
  spec.family = ModelFamily::kMoe;
  spec.qk_norm = true;
  spec.experts = spec.experts_per_token = spec.expert_intermediate = 2;
  EXPECT_THAT(TargetsOf(spec), ElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                           "up_proj", "down_proj"));
  EXPECT_FALSE(IsModule(spec, "gate"));
  EXPECT_TRUE(IsModule(spec, "experts.1.up_proj"));
  for (const Family* family : Families()) {
    spec.family = family->id;
    EXPECT_THAT(family->usual_targets(spec), ::testing::Not(IsEmpty()));
    for (const std::string& target : family->usual_targets(spec)) {
      EXPECT_TRUE(IsModule(spec, target)) << target;
    }
  }
}

TEST_P(LoraOf, BeginsAsPeft) {
  for (const PlacedParameter& placed :
       ParametersOf(Adapted(TargetsOf(Tiny())), 300, WholeOf(Tiny()))) {
    if (!placed.parameter.adapter) continue;
    const bool is_a = placed.Name().find("lora_A") != std::string::npos;
    const Initial& initial = placed.parameter.initial;
    EXPECT_EQ(initial.mean, 0);
    // The variance of numbers between -1 / sqrt(inputs) and that.
    const double variance = is_a ? 1.0 / placed.parameter.shape.columns / 3 : 0;
    EXPECT_NEAR(initial.deviation * initial.deviation, variance, 1e-12) << placed.Name();
  }
}

TEST_P(LoraOf, StagesTogetherHaveTheWholeModelsAdapters) {
  ModelSpec spec = Adapted(TargetsOf(Tiny()));
  spec.tied = true;
  std::vector<std::string> parts;
  for (const Part& part :
       {Part{0, 1, true, false}, Part{1, 1, false, false}, Part{2, 1, false, true}}) {
    for (const std::string& name : Trained(spec, part)) parts.push_back(name);
  }
  EXPECT_EQ(parts, Trained(spec, WholeOf(spec)));
}

// Neither changes, so the two stages need not agree on it.
TEST_P(LoraOf, BothEndsOfATiedModelHaveTheMatrix) {
  ModelSpec spec = Adapted(TargetsOf(Tiny()));
  spec.tied = true;
  const auto of_head = [&](bool embedding) {
    std::vector<std::string> names;
    for (const Parameter& parameter : ParametersOf(spec, 300, embedding, /*head=*/true)) {
      if (parameter.role == Role::kHead && parameter.shape.is_matrix()) {
        EXPECT_TRUE(parameter.frozen);
        names.push_back(parameter.name);
      }
    }
    return names;
  };
  EXPECT_THAT(of_head(/*embedding=*/true), IsEmpty());
  EXPECT_THAT(of_head(/*embedding=*/false), ElementsAre("lm_head.weight"));
}

TEST_P(LoraOf, RanksOfAGroupShareAnAdapterAsItsMatrix) {
  const ModelSpec spec = Adapted(TargetsOf(Tiny()));
  for (const Parameter& parameter : ParametersOf(spec, 300, false, false)) {
    if (!parameter.adapter) continue;
    uint64_t elements = 0;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const auto share = ShareOf(spec, parameter, rank, {.count = 2});
      ASSERT_TRUE(share.ok()) << share.status();
      for (const Range& range : share->ranges) elements += range.end - range.begin;
    }
    const Shape& shape = parameter.shape;
    const uint64_t along = parameter.split.along == Along::kColumns ? shape.columns : shape.rows;
    const bool whole =
        parameter.split.along == Along::kNothing || parameter.split.along == Along::kExperts;
    EXPECT_EQ(elements, whole ? 2 * along : along) << parameter.name;
    EXPECT_NE(shape.rows == 4 && parameter.split.along == Along::kRows, true) << parameter.name;
  }
}

TEST_P(LoraOf, MergesTheProductOfItsAdapters) {
  const ModelSpec spec = Adapted(TargetsOf(Tiny()));
  const Shape shape = {.rows = 2, .columns = 3};
  LoraSpec lora{.rank = 2, .alpha = 3, .targets = {}};  // 1.5 times
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {1, 0, -1, 2};
  std::vector<float> matrix = {10, 20, 30, 40, 50, 60};
  Merge(lora, shape, a, b, matrix);
  // B A = {1, 2, 3}, {7, 8, 9}.
  EXPECT_THAT(matrix, ElementsAre(11.5, 23, 34.5, 50.5, 62, 73.5));
  const auto placed = ParametersOf(Tiny(), 300, WholeOf(Tiny()));
  std::set<std::string> found;
  for (const PlacedParameter& one : placed) {
    if (!HasAdapters(*spec.lora, one)) continue;
    const Adapters adapters = AdaptersOf(*spec.lora, one);
    EXPECT_EQ(adapters.a.parameter.shape.columns, one.parameter.shape.columns);
    EXPECT_EQ(adapters.b.parameter.shape.rows, one.parameter.shape.rows);
    for (const PlacedParameter* adapter : {&adapters.a, &adapters.b}) {
      found.insert(fmt::format("{} ({}, {})", adapter->Name(), adapter->parameter.shape.rows,
                               adapter->parameter.shape.columns));
    }
  }
  const std::vector<std::string> expected = Trained(spec, WholeOf(spec));
  EXPECT_EQ(found, std::set<std::string>(expected.begin(), expected.end()));
}

}  // namespace
}  // namespace longhaul::model
