#include "run/file/model_fields.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/model/family.h"

namespace longhaul {
namespace {

// `model` on line 2, from column 8.
std::string RunWith(const std::string& model) {
  return "name: a\nmodel: " + model +
         "\ndata: { text: x.txt }\ntrain: { steps: 1, microbatches: 1 }\n";
}

std::string ErrorOf(const std::string& model, const std::vector<std::string>& overrides = {}) {
  const auto spec = ParseRunSpec(RunWith(model), "run.yaml", overrides, nullptr);
  return spec.ok() ? "no error" : std::string(Message(spec.status()));
}

ModelSpec Parse(const std::string& model, const std::vector<std::string>& overrides = {}) {
  const auto spec = ParseRunSpec(RunWith(model), "run.yaml", overrides, nullptr);
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return {};
  const std::string text = ToYaml(*spec);
  const auto again = ParseRunSpec(text, "again.yaml", {}, nullptr);
  EXPECT_TRUE(again.ok()) << again.status() << "\n" << text;
  if (!again.ok()) return {};
  EXPECT_EQ(again->model, spec->model) << text;
  return spec->model;
}

const ModelSpec& Preset(const std::string& name) {
  for (const model::Preset& preset : model::Presets()) {
    if (preset.name == name) return preset.model;
  }
  ADD_FAILURE() << name;
  static const ModelSpec none;
  return none;
}

TEST(ModelFields, EveryKeyOfFamilyLlama) {
  const ModelSpec model = Parse(
      "{ family: llama, layers: 2, hidden: 96, heads: 6, context: 8, vocabulary: 300, kv_heads: 3, "
      "intermediate: 200, rope_theta: 5e5, norm_epsilon: 1e-5, qkv_bias: true }");
  EXPECT_EQ(model.family, ModelFamily::kLlama);
  EXPECT_EQ(model.vocabulary, 300u);
  EXPECT_EQ(model.VocabularyOver(256), 300u);
  EXPECT_EQ(model.kv_heads, 3u);
  EXPECT_EQ(model.intermediate, 200u);
  EXPECT_EQ(model.rope_theta, 5e5);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_TRUE(model.qkv_bias);
}

TEST(ModelFields, WhatFamilyLlamaMayLeaveOut) {
  const ModelSpec model =
      Parse("{ family: llama, layers: 2, hidden: 96, heads: 6, context: 8, intermediate: 200 }");
  EXPECT_EQ(model.kv_heads, 6u);
  EXPECT_EQ(model.rope_theta, 1e4);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_FALSE(model.qkv_bias);
  EXPECT_EQ(model.VocabularyOver(256), 256u);
}

TEST(ModelFields, APresetIsTheWholeModel) {
  for (const model::Preset& preset : model::Presets()) {
    EXPECT_EQ(Parse("{ preset: " + preset.name + " }"), preset.model) << preset.name;
  }
  const ModelSpec& xl = Preset("gpt2-xl");
  EXPECT_EQ(xl.family, ModelFamily::kGpt);
  EXPECT_EQ(xl.context, 1024u);
  EXPECT_EQ(Preset("qwen2.5-3b").family, ModelFamily::kLlama);
  EXPECT_TRUE(Preset("qwen2.5-3b").qkv_bias);
}

TEST(ModelFields, WhatTheFileSaysCountsMoreThanThePresetWhereverItStands) {
  ModelSpec expected = Preset("qwen2.5-0.5b");
  expected.layers = 2;
  expected.context = 64;
  expected.vocabulary = std::nullopt;
  EXPECT_EQ(Parse("{ layers: 2, preset: qwen2.5-0.5b, context: 64, vocabulary: auto }"), expected);
  EXPECT_EQ(Parse("{ preset: gpt2, context: 64, vocabulary: auto }",
                  {"model.layers=2", "model.preset=qwen2.5-0.5b"}),
            expected);
}

TEST(ModelFields, PresetsThatDoNotFit) {
  EXPECT_EQ(ErrorOf("{ preset: gpt2-xxl }"),
            "run.yaml:2:18: model.preset: expected one of gpt2, gpt2-medium, gpt2-xl, "
            "qwen2.5-0.5b, qwen2.5-3b, got 'gpt2-xxl'; did you mean 'gpt2-xl'?");
  EXPECT_EQ(
      ErrorOf("{ preset: gpt2, family: llama }"),
      "run.yaml:2:32: model.family: the preset gpt2 is of family gpt, got llama; leave family "
      "out");
  // The problem is shown where the number comes from.
  EXPECT_EQ(
      ErrorOf("{ preset: gpt2, hidden: 100 }"),
      "run.yaml:2:18: model.heads: 12 heads do not divide model.hidden 100; choose a divisor");
  EXPECT_EQ(ErrorOf("{ preset: gpt2 }", {"model.tied=true"}),
            "--set model.tied=true: model.tied: true needs pipeline.stages: 1, got auto; embedding "
            "and head would lie on different workers");
}

TEST(ModelFields, ModelsThatCannotBe) {
  EXPECT_EQ(ErrorOf("{ layers: 1, hidden: 8, heads: 2, context: 8, kv_heads: 2, qkv_bias: false }"),
            "run.yaml:2:64: model.kv_heads: a key of family llama, and this model's family is gpt; "
            "leave it out or set model.family to llama\n"
            "run.yaml:2:77: model.qkv_bias: a key of family llama, and this model's family is gpt; "
            "leave it out or set model.family to llama");
  EXPECT_EQ(
      ErrorOf("{ family: llama, layers: 1, hidden: 96, heads: 4, context: 8 }"),
      "run.yaml:2:8: the key 'model.intermediate' is missing; family llama needs the width of "
      "its MLP, a whole number from 1 to 524288, for hidden 96 often 256");
  EXPECT_EQ(
      ErrorOf("{ family: llama, layers: 1, hidden: 80, heads: 16, context: 8, kv_heads: 3, "
              "intermediate: 9, vocabulary: 255 }"),
      "run.yaml:2:55: model.heads: 16 heads of model.hidden 80 have 5 channels each, an odd "
      "number; rotary embeddings turn pairs of channels\n"
      "run.yaml:2:81: model.kv_heads: 3 heads of keys and values do not divide model.heads 16; "
      "choose a divisor\n"
      "run.yaml:2:113: model.vocabulary: 255 rows are fewer than the 256 tokens of the "
      "tokenizer bytes; raise it, or 'auto' for as many");
  EXPECT_EQ(ErrorOf("{ family: lama, layers: 1, hidden: 8, heads: 1, context: 8 }"),
            "run.yaml:2:18: model.family: expected one of gpt, llama, got 'lama'; did you mean "
            "'llama'?");
}

TEST(ModelFields, TheTextOfAGptNamesNoOtherFamilysKeys) {
  EXPECT_EQ(config::ModelYaml(Preset("gpt2")),
            "model:\n  family: gpt\n  layers: 12\n  hidden: 768\n  heads: 12\n  context: 1024\n"
            "  tied: false\n  vocabulary: 50257\n");
}

}  // namespace
}  // namespace longhaul
