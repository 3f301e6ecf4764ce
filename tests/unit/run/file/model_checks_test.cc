#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "run/file/run_spec_checks.h"
#include "run/model/family.h"

namespace longhaul {
namespace {

// `model` on line 2, from column 8.
std::string RunWith(const std::string& model) {
  return "name: a\nmodel: " + model +
         "\ndata: { text: x.txt }\ntrain: { steps: 1, microbatches: 1 }\n";
}

std::string ErrorOf(const std::string& model, const std::vector<std::string>& overrides = {}) {
  const auto spec = ParseRunSpec(RunWith(model), "run.yaml", overrides);
  return spec.ok() ? "no error" : std::string(Message(spec.status()));
}

ModelSpec Parse(const std::string& model, const std::vector<std::string>& overrides = {}) {
  const auto spec = ParseRunSpec(RunWith(model), "run.yaml", overrides);
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return {};
  const std::string text = ToYaml(*spec);
  const auto again = ParseRunSpec(text, "again.yaml", {});
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

TEST(ModelFields, EveryKeyOfFamilyMoe) {
  const std::string required =
      "{ family: moe, layers: 2, hidden: 96, heads: 6, context: 8, experts: 12, "
      "experts_per_token: 3, expert_intermediate: 40";
  const ModelSpec model =
      Parse(required +
            ", kv_heads: 3, qk_norm: true, shared_intermediate: 24, "
            "normalize_router: false, balance: bias, balance_loss: 0.5, balance_rate: 0.25 }");
  EXPECT_EQ(model.family, ModelFamily::kMoe);
  EXPECT_EQ(model.kv_heads, 3u);
  EXPECT_TRUE(model.qk_norm);
  EXPECT_EQ(model.experts, 12u);
  EXPECT_EQ(model.experts_per_token, 3u);
  EXPECT_EQ(model.expert_intermediate, 40u);
  EXPECT_EQ(model.shared_intermediate, 24u);
  EXPECT_FALSE(model.normalize_router);
  EXPECT_EQ(model.balance, Balance::kBias);
  EXPECT_EQ(model.balance_loss, 0.5);
  EXPECT_EQ(model.balance_rate, 0.25);
  EXPECT_EQ(Parse(required + ", balance: none }").balance, Balance::kNone);

  const ModelSpec usual = Parse(required + " }");
  EXPECT_EQ(usual.shared_intermediate, 0u);
  EXPECT_TRUE(usual.normalize_router);
  EXPECT_EQ(usual.balance, Balance::kLoss);
  EXPECT_EQ(usual.balance_loss, 1e-3);

  EXPECT_EQ(ErrorOf(required + ", balance: both }"),
            "run.yaml:2:137: model.balance: expected one of loss, bias, none, got 'both'");
  EXPECT_EQ(ErrorOf("{ family: moe, layers: 1, hidden: 96, heads: 6, context: 8, experts: 4, "
                    "experts_per_token: 5, intermediate: 8 }"),
            "run.yaml:2:8: the key 'model.expert_intermediate' is missing; family moe needs the "
            "width of an expert's MLP, a whole number from 1 to 524288, for hidden 96 often 128\n"
            "run.yaml:2:116: model.intermediate: a key of family llama, and this model's family is "
            "moe; leave it out or set model.family to llama");
  EXPECT_EQ(ErrorOf("{ family: moe, layers: 1, hidden: 96, heads: 6, context: 8, experts: 4, "
                    "experts_per_token: 5, expert_intermediate: 8 }"),
            "run.yaml:2:99: model.experts_per_token: expected at most model.experts, 4, got 5");
}

TEST(ModelFields, APresetIsTheWholeModel) {
  for (const model::Preset& preset : model::Presets()) {
    // The context is a usual one, however far the published model reaches.
    ModelSpec expected = preset.model;
    expected.context = std::min(expected.context, 2048u);
    EXPECT_EQ(Parse("{ preset: " + preset.name + " }"), expected) << preset.name;
    EXPECT_EQ(Parse("{ preset: " + preset.name + ", context: 4096 }").context, 4096u);
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
            "qwen2.5-0.5b, qwen2.5-3b, qwen3-30b-a3b, mixtral-8x7b, got 'gpt2-xxl'; did you mean "
            "'gpt2-xl'?");
  EXPECT_EQ(
      ErrorOf("{ preset: gpt2, family: llama }"),
      "run.yaml:2:32: model.family: the preset gpt2 is of family gpt, got llama; leave family "
      "out");
  // The problem is shown where the number comes from.
  EXPECT_EQ(
      ErrorOf("{ preset: gpt2, hidden: 100 }"),
      "run.yaml:2:18: model.heads: 12 heads do not divide model.hidden 100; choose a divisor");
}

TEST(ModelFields, ModelsThatCannotBe) {
  EXPECT_EQ(ErrorOf("{ layers: 1, hidden: 8, heads: 2, context: 8, kv_heads: 2, qkv_bias: false }"),
            "run.yaml:2:64: model.kv_heads: a key of family llama or moe, and this model's family "
            "is gpt; leave it out or set model.family to llama or moe\n"
            "run.yaml:2:77: model.qkv_bias: a key of family llama or moe, and this model's family "
            "is gpt; leave it out or set model.family to llama or moe");
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
  EXPECT_EQ(
      ErrorOf("{ family: lama, layers: 1, hidden: 8, heads: 1, context: 8 }"),
      "run.yaml:2:18: model.family: expected one of gpt, llama, moe, got 'lama'; did you mean "
      "'llama'?");
}

// Parse writes what it read and reads that again.
TEST(ModelFields, KeysOfPublishedModels) {
  const std::string llama =
      "{ family: llama, layers: 2, hidden: 96, heads: 6, context: 8, "
      "intermediate: 200, ";
  const ModelSpec model =
      Parse(llama +
            "head_channels: 32, qk_norm: true, rope_scaling: llama3, rope_factor: 8, "
            "rope_low_frequency: 2, rope_high_frequency: 5.5, rope_original_context: 4096 }");
  EXPECT_EQ(model.head_channels, 32u);
  EXPECT_EQ(model.QueryChannels(), 192u);
  EXPECT_TRUE(model.qk_norm);
  EXPECT_EQ(model.rope_scaling, RopeScaling::kLlama3);
  EXPECT_EQ(model.rope_factor, 8);
  EXPECT_EQ(model.rope_low_frequency, 2);
  EXPECT_EQ(model.rope_high_frequency, 5.5);
  EXPECT_EQ(model.rope_original_context, 4096u);
  EXPECT_EQ(Parse(llama + "rope_scaling: linear, rope_factor: 0.1 }").rope_factor, 0.1);
  EXPECT_EQ(
      Parse("{ layers: 2, hidden: 8, heads: 2, context: 8, norm_epsilon: 1e-6 }").norm_epsilon,
      1e-6);
  const ModelSpec gemma =
      Parse(llama +
            "norms: both, norms_from_one: true, activation: gelu, attention_cap: 50, logit_cap: 0, "
            "window: 4, full_every: 2, scale_embedding: true, rope_scaling: longrope, "
            "rope_short_factors: [1, 1.5], rope_long_factors: [2, 4], rotary_channels: 4 }");
  EXPECT_EQ(gemma.norms, Norms::kBoth);
  EXPECT_EQ(gemma.activation, Activation::kGelu);
  EXPECT_TRUE(gemma.HasWindow(0) && !gemma.HasWindow(1));
  EXPECT_EQ(gemma.rope_long_factors, (std::vector<double>{2, 4}));
  EXPECT_EQ(ErrorOf(llama + "rope_short_factors: [1, -1] }"),
            "run.yaml:2:113: model.rope_short_factors: expected a number above 0 to 1000000, got "
            "'-1'");
  EXPECT_EQ(ErrorOf(llama + "rope_long_factors: 2 }"),
            "run.yaml:2:108: model.rope_long_factors: expected a list of at most 4096 numbers, "
            "each a number above 0 to 1000000, got '2'");
  EXPECT_EQ(ErrorOf(llama + "full_every: 2 }"),
            "run.yaml:2:8: model.window: expected the length of the window that model.window_from "
            "and model.full_every are about, got 0, no window");
  EXPECT_EQ(ErrorOf(llama + "rope_scaling: ntk }"),
            "run.yaml:2:103: model.rope_scaling: expected one of none, linear, llama3, yarn, "
            "dynamic, longrope, got 'ntk'");
}

TEST(ModelFields, TheTextOfAGptSaysNoOtherFamilysKeys) {
  const std::string text = SectionOverride("model", RunSpec{.model = Preset("gpt2")});
  EXPECT_EQ(text,
            "model={ upload: true, family: gpt, layers: 12, hidden: 768, heads: 12, context: 1024, "
            "tied: false, vocabulary: 50257, norm_epsilon: 1e-05 }");
}

// A run of what is in a folder that holds `found`.
StatusOr<RunSpec> ParseFrom(const StatusOr<FoundModel>& found, const std::string& model,
                            const std::vector<std::string>& overrides = {}) {
  return ParseRunSpec(RunWith(model), "run.yaml", overrides, {}, [&](const std::string& from) {
    EXPECT_EQ(from, "qwen");
    return found;
  });
}

FoundModel Qwen(bool tied) {
  FoundModel found{.model = Preset("qwen2.5-0.5b")};
  found.model.tied = tied;
  return found;
}

TEST(ModelFields, AFolderSaysWhatTheModelIs) {
  const auto spec =
      ParseFrom(Qwen(/*tied=*/true), "{ from: qwen, context: 64, tied: split, upload: false }");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ModelSpec expected = Preset("qwen2.5-0.5b");
  expected.context = 64;
  EXPECT_EQ(spec->model, expected);
  EXPECT_EQ(spec->weights, (WeightsSpec{.from = "qwen", .upload = false, .split = true}));
  // Who does not see the folder reads the same in what was made of it.
  const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
  RunSpec hashed = *spec;
  hashed.weights.sha256 = std::string(64, 'a');
  const auto other =
      ParseRunSpec(RunWith("{ from: qwen }"), "run.yaml", {SectionOverride("model", hashed)});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->model, hashed.model);
  EXPECT_EQ(other->weights, hashed.weights);
  // And it may be submitted again.
  EXPECT_TRUE(ParseRunSpec(ToYaml(*spec), "again.yaml", {}, {}, [](const std::string&) {
                return Qwen(true);
              }).ok());
}

// Whether anybody has said that two stages shall share a matrix is known after the file was written
// out, too.
TEST(ModelFields, ATiedModelIsNotedAsUnsaid) {
  const auto unsaid = ParseFrom(Qwen(/*tied=*/true), "{ from: qwen }");
  ASSERT_TRUE(unsaid.ok()) << unsaid.status();
  EXPECT_TRUE(unsaid->model.tied);
  EXPECT_TRUE(unsaid->weights.tied_unsaid);
  const auto again = ParseRunSpec(ToYaml(*unsaid), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *unsaid);
  const auto found = ParseFrom(Qwen(/*tied=*/true), "{ from: qwen, tied: auto }");
  EXPECT_EQ(*found, *unsaid);
  EXPECT_FALSE(ParseFrom(Qwen(/*tied=*/true), "{ from: qwen, tied: true }")->weights.tied_unsaid);
  const auto untied = ParseFrom(Qwen(/*tied=*/false), "{ from: qwen, tied: auto }");
  EXPECT_FALSE(untied->model.tied || untied->weights.tied_unsaid);
  EXPECT_EQ(ErrorOf("{ layers: 1, hidden: 8, heads: 2, context: 8, tied: auto }"),
            "run.yaml:2:60: model.tied: auto takes what a published model has, and there is no "
            "model.from; say true or false");
}

TEST(ModelFields, FoldersThatDoNotFit) {
  const auto error = [](const StatusOr<FoundModel>& found, const std::string& model) {
    const auto spec = ParseFrom(found, model);
    return spec.ok() ? "no error" : std::string(Message(spec.status()));
  };
  EXPECT_EQ(error(absl::InvalidArgumentError("one\ntwo"), "{ from: qwen, context: 8 }"),
            "run.yaml:2:16: model.from: one\nrun.yaml:2:16: model.from: two");
  EXPECT_EQ(error(Qwen(true), "{ from: qwen }"), "no error");
  EXPECT_EQ(error(Qwen(true), "{ from: qwen, tied: false, layers: 3, kv_heads: 7 }"),
            "run.yaml:2:28: model.tied: embedding and head of the model in qwen are one matrix; "
            "say split to begin both with it and train them apart\n"
            "run.yaml:2:43: model.layers: the model in qwen has another; leave it out\n"
            "run.yaml:2:56: model.kv_heads: the model in qwen has another; leave it out");
  EXPECT_EQ(error(Qwen(false), "{ from: qwen, preset: gpt2 }"),
            "run.yaml:2:30: model.preset: model.from says what the model is; leave preset out");
  // Ranks with channels of their own are another model for each number of them.
  FoundModel of_ranks = Qwen(false);
  of_ranks.ranks = 2;
  of_ranks.shared_channels = 0.5;
  EXPECT_EQ(error(of_ranks, "{ from: qwen }"),
            "run.yaml:2:16: model.from: the model in qwen was trained by 2 ranks with group.p 0.5, "
            "and is another one with group: { tensor: 1, p: 1 }; expected group: { tensor: 2, p: "
            "0.5 }");
  const std::vector<std::string> same = {"group={ tensor: 2, p: 0.5 }"};
  const auto fits = ParseFrom(of_ranks, "{ from: qwen }", same);
  ASSERT_TRUE(fits.ok()) << fits.status();
  // The coordinator reads no folder.
  EXPECT_TRUE(ParseRunSpec(ToYaml(*fits), "again.yaml", {}).ok());
  const auto published = ParseFrom(Qwen(false), "{ from: qwen }", same);
  EXPECT_THAT(std::string(Message(published.status())),
              ::testing::HasSubstr("group.p: the model in qwen has no channels of ranks' own"));
  FoundModel window = Qwen(false);
  window.model.window = 4096;
  window.model.window_from = 12;
  const auto spec = ParseFrom(window, "{ from: qwen, context: 8192 }");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->model.HasWindow(12) && !spec->model.HasWindow(11));
  EXPECT_EQ(ErrorOf("{ layers: 1, hidden: 8, heads: 2, context: 8, tied: split }"),
            "run.yaml:2:60: model.tied: split copies the matrix of a published model, and there "
            "is no model.from; say false");
}

}  // namespace
}  // namespace longhaul
