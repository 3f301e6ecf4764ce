#include "run/model/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace longhaul::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

ModelSpec Small(ModelFamily family) {
  ModelSpec spec;
  spec.family = family;
  spec.layers = 12;
  spec.hidden = 24;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.context = 10;
  spec.intermediate = 40;
  spec.experts = 4;
  spec.experts_per_token = 2;
  spec.expert_intermediate = 16;
  return spec;
}

std::vector<ModelSpec> Variants() {
  std::vector<ModelSpec> variants;
  for (const Family* family : Families()) {
    for (const bool bias : {false, true}) {
      for (const bool tied : {false, true}) {
        variants.push_back(Small(family->id));
        variants.back().qkv_bias = bias;
        variants.back().tied = tied;
        if (family->id == ModelFamily::kMoe) {
          variants.push_back(variants.back());
          variants.back().shared_intermediate = 8;
        }
        if (family->id == ModelFamily::kGpt) continue;
        ModelSpec normed = variants.back();
        normed.qk_norm = true;
        variants.push_back(normed);
        normed.head_channels = 10;  // 60 channels of queries, not hidden's 24
        variants.push_back(normed);
        normed.rope_scaling = RopeScaling::kLlama3;
        normed.rope_factor = 8;
        variants.push_back(normed);
      }
    }
  }
  return variants;
}

constexpr uint32_t kRows = 300;  // of the vocabulary

Part Whole(const ModelSpec& spec) {
  return {.first_layer = 0, .layers = spec.layers, .embedding = true, .head = true};
}

std::vector<std::string> PublishedNames(const ModelSpec& spec, const Part& part) {
  std::vector<std::string> names;
  for (const PlacedParameter& placed : ParametersOf(spec, kRows, part)) {
    names.push_back(placed.PublishedName());
    if (placed.parameter.published_transposed) names.back() += " (transposed)";
  }
  return names;
}

TEST(Families, AreFoundByTheirId) {
  std::set<std::string_view> names;
  for (const Family* family : Families()) {
    EXPECT_EQ(&FamilyOf(family->id), family);
    EXPECT_EQ(ToString(family->id), family->name);
    EXPECT_TRUE(names.insert(family->name).second) << family->name;
  }
  EXPECT_THAT(names, ElementsAre("gpt", "llama", "moe"));
}

// As in the state of transformers' GPT2LMHeadModel, whose Conv1D is (inputs, outputs).
TEST(PublishedNames, OfGpt2) {
  ModelSpec spec = Small(ModelFamily::kGpt);
  EXPECT_THAT(
      PublishedNames(spec, {.first_layer = 11, .layers = 1, .embedding = true, .head = true}),
      ElementsAre(
          "transformer.wte.weight", "transformer.wpe.weight", "transformer.h.11.ln_1.weight",
          "transformer.h.11.ln_1.bias", "transformer.h.11.attn.c_attn.weight (transposed)",
          "transformer.h.11.attn.c_attn.bias", "transformer.h.11.attn.c_proj.weight (transposed)",
          "transformer.h.11.attn.c_proj.bias", "transformer.h.11.ln_2.weight",
          "transformer.h.11.ln_2.bias", "transformer.h.11.mlp.c_fc.weight (transposed)",
          "transformer.h.11.mlp.c_fc.bias", "transformer.h.11.mlp.c_proj.weight (transposed)",
          "transformer.h.11.mlp.c_proj.bias", "transformer.ln_f.weight", "transformer.ln_f.bias",
          "lm_head.weight"));
}

// As in the state of transformers' Qwen2ForCausalLM; LlamaForCausalLM's has no biases.
TEST(PublishedNames, OfQwen2) {
  ModelSpec spec = Small(ModelFamily::kLlama);
  spec.qkv_bias = true;
  EXPECT_THAT(
      PublishedNames(spec, {.first_layer = 3, .layers = 1, .embedding = true, .head = true}),
      ElementsAre("model.embed_tokens.weight", "model.layers.3.input_layernorm.weight",
                  "model.layers.3.self_attn.q_proj.weight", "model.layers.3.self_attn.q_proj.bias",
                  "model.layers.3.self_attn.k_proj.weight", "model.layers.3.self_attn.k_proj.bias",
                  "model.layers.3.self_attn.v_proj.weight", "model.layers.3.self_attn.v_proj.bias",
                  "model.layers.3.self_attn.o_proj.weight",
                  "model.layers.3.post_attention_layernorm.weight",
                  "model.layers.3.mlp.gate_proj.weight", "model.layers.3.mlp.up_proj.weight",
                  "model.layers.3.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"));
}

// As in the state of transformers' Qwen3ForCausalLM.
TEST(PublishedNames, OfQwen3) {
  ModelSpec spec = Small(ModelFamily::kLlama);
  spec.qk_norm = true;
  spec.tied = true;
  EXPECT_THAT(
      PublishedNames(spec, {.first_layer = 3, .layers = 1, .embedding = false, .head = true}),
      ElementsAre(
          "model.layers.3.input_layernorm.weight", "model.layers.3.self_attn.q_proj.weight",
          "model.layers.3.self_attn.k_proj.weight", "model.layers.3.self_attn.v_proj.weight",
          "model.layers.3.self_attn.o_proj.weight", "model.layers.3.self_attn.q_norm.weight",
          "model.layers.3.self_attn.k_norm.weight",
          "model.layers.3.post_attention_layernorm.weight", "model.layers.3.mlp.gate_proj.weight",
          "model.layers.3.mlp.up_proj.weight", "model.layers.3.mlp.down_proj.weight",
          "model.norm.weight", "model.embed_tokens.weight"));
}

// Names in the MLP of a block with two experts, as in the files that transformers writes.
std::vector<std::string> NamesOfMixture(ModelSpec spec) {
  spec.experts = 2;
  std::vector<std::string> names =
      PublishedNames(spec, {.first_layer = 3, .layers = 1, .embedding = false, .head = false});
  std::erase_if(names, [](const std::string& name) {
    return name.find("norm") != std::string::npos || name.find("self_attn") != std::string::npos;
  });
  for (std::string& name : names) {
    EXPECT_THAT(name, StartsWith("model.layers.3."));
    name.erase(0, std::string("model.layers.3.").size());
  }
  return names;
}

TEST(PublishedNames, OfMixtral) {
  EXPECT_THAT(
      NamesOfMixture(Small(ModelFamily::kMoe)),
      ElementsAre("block_sparse_moe.gate.weight", "block_sparse_moe.experts.0.w1.weight",
                  "block_sparse_moe.experts.0.w3.weight", "block_sparse_moe.experts.0.w2.weight",
                  "block_sparse_moe.experts.1.w1.weight", "block_sparse_moe.experts.1.w3.weight",
                  "block_sparse_moe.experts.1.w2.weight"));
}

TEST(PublishedNames, OfQwen2MoeAndQwen3Moe) {
  ModelSpec spec = Small(ModelFamily::kMoe);
  spec.qk_norm = true;
  const std::vector<std::string> qwen3 = NamesOfMixture(spec);
  EXPECT_THAT(qwen3, ElementsAre("mlp.gate.weight", "mlp.experts.0.gate_proj.weight",
                                 "mlp.experts.0.up_proj.weight", "mlp.experts.0.down_proj.weight",
                                 "mlp.experts.1.gate_proj.weight", "mlp.experts.1.up_proj.weight",
                                 "mlp.experts.1.down_proj.weight"));
  spec.qk_norm = false;
  spec.qkv_bias = true;
  spec.shared_intermediate = 8;
  std::vector<std::string> qwen2 = qwen3;
  for (const char* const name :
       {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight",
        "mlp.shared_expert.down_proj.weight", "mlp.shared_expert_gate.weight"}) {
    qwen2.emplace_back(name);
  }
  EXPECT_EQ(NamesOfMixture(spec), qwen2);
}

// The names of checkpoints do not depend on how the model is published.
TEST(Parameters, ExpertsHaveOneGlobalName) {
  ModelSpec mixtral = Small(ModelFamily::kMoe), qwen = mixtral;
  qwen.qkv_bias = true;
  std::set<std::string> of_mixtral, of_qwen;
  for (const PlacedParameter& one : ParametersOf(mixtral, kRows, Whole(mixtral))) {
    of_mixtral.insert(one.Name());
  }
  for (const PlacedParameter& one : ParametersOf(qwen, kRows, Whole(qwen))) {
    if (!one.Name().ends_with(".bias")) of_qwen.insert(one.Name());
  }
  EXPECT_EQ(of_mixtral, of_qwen);
}

TEST(Parameters, HeadsHaveTheirOwnChannels) {
  ModelSpec spec = Small(ModelFamily::kLlama);  // 6 heads, 2 of keys and values
  spec.qk_norm = spec.qkv_bias = true;
  const auto shapes = [&] {
    std::map<std::string, Shape> by_name;
    for (const Parameter& parameter : FamilyOf(spec).parameters(spec, kRows)) {
      by_name[std::string(parameter.name)] = parameter.shape;
    }
    return by_name;
  };
  for (const uint32_t channels : {0u, 4u, 10u}) {
    spec.head_channels = channels;
    const uint32_t of_head = channels == 0 ? 4 : channels;
    EXPECT_EQ(spec.HeadChannels(), of_head);
    auto of = shapes();
    const std::string attention = "model.layers.#.self_attn.";
    EXPECT_EQ(of[attention + "q_proj.weight"], (Shape{6 * of_head, 24}));
    EXPECT_EQ(of[attention + "k_proj.weight"], (Shape{2 * of_head, 24}));
    EXPECT_EQ(of[attention + "v_proj.bias"], (Shape{2 * of_head}));
    EXPECT_EQ(of[attention + "o_proj.weight"], (Shape{24, 6 * of_head}));
    EXPECT_EQ(of[attention + "q_norm.weight"], (Shape{of_head}));
    EXPECT_EQ(of[attention + "k_norm.weight"], (Shape{of_head}));
  }
}

// Sizes as large as keys may be: nothing wraps around.
TEST(Parameters, OfTheLargestModel) {
  for (const Family* family : Families()) {
    ModelSpec spec = Small(family->id);
    spec.layers = kMostLayers;
    spec.hidden = kMostHidden;
    spec.heads = kMostHeads;
    spec.context = kMostContext;
    spec.kv_heads = spec.head_channels = 1u << 12;
    spec.intermediate = spec.expert_intermediate = 1u << 19;
    spec.experts = spec.experts_per_token = 1u << 12;
    if (family->id == ModelFamily::kMoe) spec.layers = 16;
    EXPECT_THAT(Problems(spec), IsEmpty());
    uint64_t elements = 0;
    for (const Parameter& parameter : family->parameters(spec, kMostVocabulary)) {
      EXPECT_GE(parameter.shape.rows, 4096u) << parameter.name;
      elements += parameter.shape.elements();
    }
    EXPECT_GT(elements, uint64_t{1} << 42) << family->name;
    EXPECT_GT(family->kept_by_block(spec, {}).half, uint64_t{1} << 20);
  }
}

TEST(PublishedNames, AreOneForEachParameter) {
  for (const ModelSpec& spec : Variants()) {
    const std::string_view prefix = FamilyOf(spec).published_prefix;
    std::set<std::string> global, published;
    const std::vector<PlacedParameter> all = ParametersOf(spec, kRows, Whole(spec));
    for (const PlacedParameter& placed : all) {
      EXPECT_TRUE(global.insert(placed.Name()).second) << placed.Name();
      EXPECT_TRUE(published.insert(placed.PublishedName()).second) << placed.PublishedName();
      if (placed.Name() != "lm_head.weight") {
        EXPECT_THAT(placed.PublishedName(), StartsWith(std::string(prefix)));
      }
      if (placed.parameter.published_transposed) {
        EXPECT_TRUE(placed.parameter.shape.is_matrix()) << placed.Name();
      }
      const bool in_block = placed.parameter.role == Role::kBlock;
      EXPECT_EQ(placed.parameter.name.find('#') != std::string_view::npos, in_block);
      EXPECT_EQ(placed.parameter.published.find('#') != std::string_view::npos, in_block);
    }
    EXPECT_EQ(global.size(), all.size());
  }
}

TEST(ParametersOf, PartsAreTheWholeModelInItsOrder) {
  for (const ModelSpec& spec : Variants()) {
    std::vector<std::string> parts, whole;
    for (const Part& part :
         {Part{0, 5, true, false}, Part{5, 1, false, false}, Part{6, 0}, Part{6, 6, false, true}}) {
      for (const PlacedParameter& placed : ParametersOf(spec, kRows, part)) {
        parts.push_back(placed.Name());
      }
    }
    for (const PlacedParameter& placed : ParametersOf(spec, kRows, Whole(spec))) {
      whole.push_back(placed.Name());
    }
    // The last part of a tied model has the first one's matrix once more.
    if (spec.tied) {
      const auto last = ParametersOf(spec, kRows, {6, 6, false, true});
      EXPECT_EQ(parts.back(), whole.front());
      EXPECT_TRUE(last.back().repeated && last.back().parameter.is_tied());
      EXPECT_EQ(last.back().parameter.decays(),
                ParametersOf(spec, kRows, Whole(spec))[0].parameter.decays());
      EXPECT_FALSE(last.front().repeated);
      parts.pop_back();
    }
    EXPECT_EQ(parts, whole);
    EXPECT_EQ(whole.back() == "lm_head.weight", !spec.tied);
  }
}

TEST(Parameters, MatricesDecayAndWhatIsMultipliedIsCast) {
  for (const ModelSpec& spec : Variants()) {
    for (const Parameter& parameter : FamilyOf(spec).parameters(spec, kRows)) {
      const bool norm = parameter.name.find("ln_") != std::string_view::npos ||
                        parameter.name.find("norm") != std::string_view::npos;
      const bool bias = parameter.name.ends_with(".bias");
      EXPECT_EQ(parameter.decays(), !norm && !bias) << parameter.name;
      const bool table = parameter.role == Role::kEmbedding;
      const bool tied_table = table && spec.tied && parameter.name != "wpe";
      const bool router = parameter.name.ends_with("mlp.gate.weight");  // in fp32
      EXPECT_EQ(parameter.in_product, tied_table || (!table && !norm && !router)) << parameter.name;
      // Matrices begin as noise, norms with 1, biases with 0.
      EXPECT_EQ(parameter.initial.deviation > 0, parameter.shape.is_matrix()) << parameter.name;
      EXPECT_EQ(parameter.initial.mean, norm && !bias ? 1 : 0) << parameter.name;
    }
  }
}

TEST(Problems, NameTheKeyToChange) {
  const auto texts = [](ModelFamily family, auto change) {
    ModelSpec spec = Small(family);
    change(spec);
    std::vector<std::pair<std::string, std::string>> found;
    for (const Problem& problem : Problems(spec)) {
      found.emplace_back(problem.key, problem.text);
    }
    return found;
  };
  for (const Family* family : Families()) {
    EXPECT_THAT(texts(family->id, [](ModelSpec&) {}), IsEmpty());
    EXPECT_THAT(
        texts(family->id, [](ModelSpec& spec) { spec.heads = 5; }),
        ElementsAre(std::pair(
            "heads", "model.heads: 5 heads do not divide model.hidden 24; choose a divisor")));
  }
  const auto bad = [](ModelSpec& spec) { spec.kv_heads = 0, spec.intermediate = 1u << 20; };
  EXPECT_THAT(texts(ModelFamily::kGpt, bad), IsEmpty());
  EXPECT_THAT(
      texts(ModelFamily::kLlama, bad),
      ElementsAre(
          std::pair("kv_heads", "model.kv_heads: expected a whole number from 1 to 4096, got 0"),
          std::pair("intermediate",
                    "model.intermediate: expected a whole number from 1 to 524288, got 1048576")));
  EXPECT_THAT(texts(ModelFamily::kLlama, [](ModelSpec& spec) { spec.kv_heads = 4; }),
              ElementsAre(std::pair("kv_heads",
                                    "model.kv_heads: 4 heads of keys and values do not divide "
                                    "model.heads 6; choose a divisor")));
}

TEST(Problems, OfExperts) {
  const auto problem_of = [](const ModelSpec& of) {
    const std::vector<Problem> problems = Problems(of);
    return problems.size() == 1 ? std::string(problems[0].key) + ": " + problems[0].text : "";
  };
  ModelSpec spec = Small(ModelFamily::kMoe);
  spec.experts_per_token = 5;
  EXPECT_EQ(problem_of(spec),
            "experts_per_token: model.experts_per_token: expected at most model.experts, 4, got 5");
  spec.experts_per_token = 4;
  EXPECT_THAT(Problems(spec), IsEmpty());
  spec.kv_heads = 4;
  EXPECT_THAT(problem_of(spec), StartsWith("kv_heads: "));  // as in family llama
  spec.kv_heads = 2;
  spec.layers = 4096;
  spec.experts = 17;
  EXPECT_EQ(problem_of(spec),
            "experts: model.experts: 17 in each of model.layers 4096 are more than 65536; lower "
            "one of them");
  spec.experts = 16;
  EXPECT_THAT(Problems(spec), IsEmpty());
  spec.balance = Balance::kBias;
  EXPECT_THAT(Problems(spec), IsEmpty());
  spec.lora = LoraSpec{.rank = 2, .alpha = 4, .targets = {"q_proj"}};
  EXPECT_THAT(problem_of(spec), StartsWith("balance: model.balance: bias moves numbers that no"));
}

TEST(Problems, OfHeadChannelsAndRope) {
  const auto texts = [](auto change) {
    ModelSpec spec = Small(ModelFamily::kLlama);
    change(spec);
    std::vector<std::string> found;
    for (const Problem& problem : Problems(spec)) found.push_back(problem.text);
    return found;
  };
  // Heads of their own size need not divide hidden.
  EXPECT_THAT(texts([](ModelSpec& spec) { spec.hidden = 25, spec.head_channels = 8; }), IsEmpty());
  EXPECT_THAT(texts([](ModelSpec& spec) { spec.head_channels = 7; }),
              ElementsAre("model.head_channels: expected an even number, got 7; rotary embeddings "
                          "turn pairs of channels"));
  EXPECT_THAT(texts([](ModelSpec& spec) { spec.head_channels = 4098; }),
              ElementsAre("model.head_channels: expected a whole number from 0 to 4096, got 4098"));
  EXPECT_THAT(texts([](ModelSpec& spec) {
                spec.rope_scaling = RopeScaling::kLlama3;
                spec.rope_high_frequency = 1;
              }),
              ElementsAre("model.rope_high_frequency: expected more than model.rope_low_frequency, "
                          "1, got 1"));
  EXPECT_THAT(
      texts([](ModelSpec& spec) {
        spec.norm_epsilon = 0;
        spec.rope_theta = std::numeric_limits<double>::quiet_NaN();
        spec.rope_factor = 1e7;
      }),
      ElementsAre("model.rope_theta: expected a number above 0 and up to 1000000000000, got nan",
                  "model.norm_epsilon: expected a number above 0 and up to 1, got 0",
                  "model.rope_factor: expected a number above 0 and up to 1000000, got 10000000"));
}

TEST(Presets, CanBeAndAreComplete) {
  std::set<std::string> names;
  for (const Preset& preset : Presets()) {
    EXPECT_TRUE(names.insert(preset.name).second) << preset.name;
    EXPECT_THAT(Problems(preset.model), IsEmpty()) << preset.name;
    EXPECT_TRUE(preset.model.vocabulary.has_value()) << preset.name;
  }
  EXPECT_THAT(names, ElementsAre("gpt2", "gpt2-medium", "gpt2-xl", "mixtral-8x7b", "qwen2.5-0.5b",
                                 "qwen2.5-3b", "qwen3-30b-a3b"));
}

}  // namespace
}  // namespace longhaul::model
