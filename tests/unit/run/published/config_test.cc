#include "run/published/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "run/model/family.h"
#include "tests/unit/run/published/config_fixtures.h"

namespace longhaul::published {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParseConfig, FixturesAreTheModelsThatTheirNamesSay) {
  for (const std::string& folder : kFolders) {
    const Config config = MustParse(ConfigOf(folder));
    EXPECT_EQ(config.model, OfFixture(folder)) << folder;
  }
}

// What the Hub's own files say, abridged to what differs from the fixtures.
TEST(ParseConfig, FilesOfTheHub) {
  const Config gpt2_medium = MustParse(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1024, "n_head": 16,
    "n_layer": 24, "n_positions": 1024, "n_special": 0, "predict_special_tokens": true,
    "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
    "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "vocab_size": 50257})");
  ModelSpec expected;
  for (const model::Preset& preset : model::Presets()) {
    if (preset.name == "gpt2-medium") expected = preset.model;
  }
  expected.tied = true;
  EXPECT_EQ(gpt2_medium.model, expected);

  const Config qwen = MustParse(R"({
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
    "use_sliding_window": false, "vocab_size": 151936})");
  for (const model::Preset& preset : model::Presets()) {
    if (preset.name == "qwen2.5-0.5b") expected = preset.model;
  }
  expected.tied = true;
  EXPECT_EQ(qwen.model, expected);
  EXPECT_EQ(qwen.model.window, 0u);

  const Config smol = MustParse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576,
    "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
    "max_position_embeddings": 8192, "model_type": "llama", "num_attention_heads": 9,
    "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": true, "vocab_size": 49152})");
  EXPECT_EQ(smol.model.rope_theta, 1e5);
  EXPECT_EQ(smol.model.kv_heads, 3u);
}

// What transformers' config classes say.
TEST(ParseConfig, AbsentKeysMeanWhatTheyMeanToTransformers) {
  const ModelSpec gpt2 = MustParse(R"({"model_type": "gpt2"})").model;
  ModelSpec expected = model::Presets().front().model;  // gpt2
  expected.tied = true;
  EXPECT_EQ(gpt2, expected);

  const std::string required = R"("hidden_size": 4096, "num_hidden_layers": 2, "vocab_size": 100,
      "num_attention_heads": 32, "intermediate_size": 64})";
  const auto of = [&](const std::string& type) {
    return MustParse(R"({"model_type": ")" + type + R"(", )" + required);
  };
  for (const std::string type : {"llama", "mistral", "qwen2", "qwen3"}) {
    const ModelSpec model = of(type).model;
    EXPECT_EQ(model.kv_heads, type == "mistral" ? 8u : 32u) << type;
    EXPECT_EQ(model.norm_epsilon, 1e-6) << type;
    EXPECT_EQ(model.rope_theta, 1e4) << type;
    EXPECT_EQ(model.rope_scaling, RopeScaling::kNone) << type;
    EXPECT_FALSE(model.tied) << type;
    EXPECT_EQ(model.HeadChannels(), 128u) << type;
    EXPECT_EQ(model.qkv_bias, type == "qwen2") << type;
    EXPECT_EQ(model.qk_norm, type == "qwen3") << type;
  }
  EXPECT_EQ(of("llama").model.context, 2048u);
  EXPECT_EQ(of("mistral").model.context, 131072u);
  EXPECT_EQ(of("qwen2").model.context, 32768u);
  EXPECT_EQ(of("qwen3").model.context, 32768u);
  EXPECT_EQ(of("mistral").model.window, 4096u);
  EXPECT_EQ(of("llama").model.window, 0u);
  EXPECT_EQ(of("qwen2").model.window, 0u);

  EXPECT_EQ(MustParse(Without("qwen3", {"head_dim"})).model.head_channels, 128u);
  EXPECT_EQ(MustParse(Without("llama3", {"head_dim"})).model, OfFixture("llama3"));
}

TEST(ParseConfig, NullMeansWhatItMeansToTransformers) {
  for (const std::string folder : {"llama3", "mistral", "qwen2_5"}) {
    EXPECT_EQ(MustParse(With(folder, {{"num_key_value_heads", nullptr}})).model.kv_heads, 4u);
    EXPECT_EQ(MustParse(With(folder, {{"head_dim", nullptr}})).model, OfFixture(folder));
  }
  const ModelSpec model = MustParse(With("llama2", {{"rope_scaling", nullptr},
                                                    {"quantization_config", nullptr},
                                                    {"no_such_key", nullptr}}))
                              .model;
  EXPECT_EQ(model, OfFixture("llama2"));
}

TEST(ParseConfig, HeadsMayHaveOtherChannelsThanTheirShareOfHidden) {
  const auto heads_of = [](const std::string& folder, Json channels) {
    return MustParse(With(folder, {{"head_dim", std::move(channels)}})).model.head_channels;
  };
  EXPECT_EQ(heads_of("llama3", 10), 10u);
  EXPECT_EQ(heads_of("qwen2_5", 10), 10u);
  EXPECT_EQ(heads_of("mistral", 8), 0u);  // as many as hidden / heads: nothing of its own
  EXPECT_THAT(Refusal(With("llama3", {{"head_dim", 9}})),
              HasSubstr("config.json: model.head_channels: expected an even number, got 9"));
}

TEST(ParseConfig, EachKeyThatIsComputedOtherwiseIsRefusedByName) {
  const std::vector<std::tuple<std::string, std::string, Json, std::string>> cases = {
      {"gpt2", "n_inner", 95, "got 95, and longhaul computes only models with 96"},
      {"gpt2", "n_ctx", 64, "got 64, and longhaul computes only models with 32"},
      {"gpt2", "activation_function", "relu",
       "got \"relu\", and longhaul computes only models with \"gelu_new\" or "
       "\"gelu_pytorch_tanh\""},
      {"gpt2", "scale_attn_weights", false, "got false"},
      {"gpt2", "scale_attn_by_inverse_layer_idx", true, "got true"},
      {"gpt2", "add_cross_attention", true, "got true"},
      {"gpt2", "n_embd", 0, "expected a whole number from 1 to 131072, got 0"},
      {"gpt2", "n_layer", 1e9, "expected a whole number from 1 to 4096, got 1000000000.0"},
      {"gpt2", "n_head", 1u << 30, "expected a whole number from 1 to 4096, got 1073741824"},
      {"gpt2", "n_positions", -1, "expected a whole number from 1 to 4194304, got -1"},
      {"gpt2", "vocab_size", "96", "expected a whole number from 1 to 16777216, got \"96\""},
      {"gpt2", "layer_norm_epsilon", 0, "expected a number above 0, got 0"},
      {"gpt2", "tie_word_embeddings", "yes", "expected true or false, got \"yes\""},
      {"gpt2", "rope_theta", 1e4, "longhaul does not know this key"},
      {"llama2", "hidden_act", "gelu",
       "got \"gelu\", and longhaul computes only models with \"sil"},
      {"llama2", "attention_bias", true, "got true"},
      {"llama2", "mlp_bias", true, "got true"},
      {"llama2", "partial_rotary_factor", 0.25, "got 0.25"},
      {"llama2", "rope_interleaved", true, "got true"},
      {"llama2", "num_key_value_heads", {2}, "got a list"},
      {"llama2", "head_dim", {{"a", 2}}, "got an object"},
      {"llama2", "hidden_size", nullptr, "but the key is missing"},
      {"llama2", "intermediate_size", 1u << 31, "model.intermediate: expected a whole number fro"},
      {"llama2", "rms_norm_eps", 2.0, "model.norm_epsilon: expected a number above 0 and up to 1"},
      {"gpt2", "n_head", 5, "model.heads: 5 heads do not divide model.hidden 24"},
      {"llama2", "num_key_value_heads", 3, "model.kv_heads: 3 heads of keys and values do not div"},
      {"mistral", "sliding_window", 0, "got 0"},
      {"mistral", "model_type", "mystery",
       "expected gpt2, llama, mistral, qwen2, qwen3, smollm3, olmo2, phi3, gemma2, gemma3_text, "
       "mixtral, qwen2_moe or qwen3_moe, got \"mystery\""},
      {"mixtral", "model_type", "gpt_oss", "longhaul does not compute what it has: attention sin"},
      {"mistral", "model_type", "deepseek_v3", "latent attention"},
      {"gemma3", "model_type", "gemma3", "images; of this model's text part"},
      {"gemma2", "hidden_activation", "gelu", "only models with \"gelu_pytorch_tanh\""},
      {"gemma3", "use_bidirectional_attention", true, "got true"},
      {"gemma2", "attn_logit_softcapping", -1, "expected a number above 0, got -1"},
      {"phi3", "partial_rotary_factor", 1.5, "got 1.5"},
      {"phi3", "partial_rotary_factor", 0.4, "model.rotary_channels: expected an even number"},
      {"mistral", "model_type", 7, "got 7"},
      {"mistral", "model_type", nullptr, "got none"},
      {"qwen2_5", "use_mrope", true, "got true"},
      {"qwen3", "attention_bias", true, "got true"},
      {"qwen3", "num_experts", 8, "longhaul does not know this key"},
      {"mixtral", "router_jitter_noise", 0.1, "got 0.1, and longhaul computes only models with 0"},
      {"mixtral", "num_experts_per_tok", 5, "model.experts_per_token: expected at most model.exp"},
      {"mixtral", "num_local_experts", nullptr, "but the key is missing"},
      {"mixtral", "router_aux_loss_coef", -1, "expected a number above 0, got -1"},
      {"qwen3_moe", "decoder_sparse_step", 2, "got 2"},
      {"qwen3_moe",
       "mlp_only_layers",
       {0},
       "got a list, and longhaul computes only models with []"},
      {"qwen3_moe", "shared_expert_intermediate_size", 8, "got 8"},
      {"qwen3_moe", "use_qk_norm", false, "got false"},
      {"qwen2_moe", "shared_expert_gate", false, "got false"},
      {"qwen2_moe", "shared_expert_intermediate_size", 0, "expected a whole number from 1"},
      {"qwen3", "quantization_config", {{"bits", 4}}, "only weights that are not quantized"},
      {"qwen3",
       "auto_map",
       {{"AutoModelForCausalLM", "modeling_own.OwnForCausalLM"}},
       "computed by code of its own (AutoModelForCausalLM: \"modeling_own.OwnForCausalLM\")"},
      {"qwen3", "hidden_act", std::string(1000, 'x'), "got a text of 1002 bytes"},
  };
  for (const auto& [folder, key, value, text] : cases) {
    const std::string refusal = Refusal(With(folder, {{key, value}}));
    EXPECT_THAT(refusal, HasSubstr(text)) << folder << " " << key;
    EXPECT_EQ(refusal.find('\n'), std::string::npos) << refusal;
    const bool by_model = text.starts_with("model.");
    EXPECT_TRUE(refusal.starts_with("config.json: " + (by_model ? "" : key + ": "))) << refusal;
  }
}

TEST(ParseConfig, AllThatIsWrongIsSaidAtOnce) {
  EXPECT_EQ(Refusal(With("llama2", {{"hidden_size", -3},
                                    {"hidden_act", "relu"},
                                    {"moe", 8},
                                    {"quantization_config", {{"bits", 4}}},
                                    {"rope_parameters", {{"rope_type", "mystery"}}}})),
            "config.json: hidden_size: expected a whole number from 1 to 131072, got -3\n"
            "config.json: rope_parameters: got the type \"mystery\", and longhaul computes only "
            "default, linear, llama3, yarn, dynamic and longrope\n"
            "config.json: hidden_act: got \"relu\", and longhaul computes only models with "
            "\"silu\"\n"
            "config.json: quantization_config: longhaul reads only weights that are not quantized\n"
            "config.json: moe: longhaul does not know this key; if it changes nothing that the "
            "model computes, delete it from the file");
}

TEST(ParseConfig, WhatIsNoConfigIsRefused) {
  EXPECT_EQ(Refusal("<html>Sign in</html>"),
            "config.json: expected a JSON object, such as transformers writes; it is a web page, "
            "perhaps one that asks for a login; download the file again");
  EXPECT_EQ(MustParse("\xEF\xBB\xBF" + ConfigOf("llama2")).model, OfFixture("llama2"));
  const std::string deep(100'000, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string("\xff"), std::string("{\"model_type\": \"gpt2\",}"), deep,
        "{\"a\": " + deep + "}"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("config.json: expected a JSON object"));
  }
  // Nested values would be written into the message, by a function that calls itself.
  for (const std::string key : {"n_layer", "no_such_key", "task_specific_params"}) {
    const std::string nested = std::string(200'000, '[') + std::string(200'000, ']');
    EXPECT_THAT(Refusal(fmt::format(R"({{"model_type": "gpt2", "{}": {}}})", key, nested)),
                HasSubstr("expected a JSON object"));
  }
  // Many keys take no time that grows with their square.
  std::string many = R"({"model_type": "gpt2")";
  for (int i = 0; i < 50'000; ++i) many += ",\"" + std::to_string(i) + "\":null";
  EXPECT_EQ(MustParse(many + "}").model.layers, 12u);
}

TEST(WriteConfig, ReadsAsTheModelThatItIsOf) {
  for (const std::string& folder : kFolders) {
    const ModelSpec model = OfFixture(folder);
    for (const std::string& original : {std::string(), ConfigOf(folder)}) {
      for (const ExportType type : {ExportType::kFp32, ExportType::kBf16, ExportType::kFp16}) {
        const auto text = WriteConfig(model, type, original);
        ASSERT_TRUE(text.ok()) << folder << ": " << text.status();
        EXPECT_EQ(MustParse(*text).model, model) << *text;
        const Json json = Json::parse(*text);
        EXPECT_EQ(json.value("dtype", json.value("torch_dtype", "")),
                  type == ExportType::kFp32   ? "float32"
                  : type == ExportType::kBf16 ? "bfloat16"
                                              : "float16");
        EXPECT_FALSE(json.contains("dtype") && json.contains("torch_dtype"));
        EXPECT_EQ(json.contains("bos_token_id"), !original.empty());
      }
    }
  }
}

TEST(WriteConfig, KeepsWhatTheOriginalSaysOfOtherThings) {
  const std::string original =
      With("mistral", {{"sliding_window", 16}, {"torch_dtype", "float16"}});
  Json expected = Json::parse(original);
  expected["dtype"] = "bfloat16";
  expected.erase("torch_dtype");
  ModelSpec model = OfFixture("mistral");
  model.window = 16;
  model.context = 16;  // of the run; positions need no weights, and the original knows how far
  const auto text = WriteConfig(model, ExportType::kBf16, original);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(Json::parse(*text), expected);
  EXPECT_LT(text->find("\"architectures\""), text->find("\"attention_dropout\""));

  // Learned positions are as many as the run's context.
  ModelSpec gpt2 = OfFixture("gpt2");
  gpt2.context = 16;
  const auto cut = WriteConfig(gpt2, ExportType::kFp32, With("gpt2", {{"n_ctx", 32}}));
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(MustParse(*cut).model, gpt2);
}

TEST(WriteConfig, BeginsAnewWhereTheOriginalIsAnotherModel) {
  const std::vector<std::function<void(ModelSpec&)>> changes = {
      [](ModelSpec& model) { model.rope_theta = 5e5; },
      [](ModelSpec& model) { model.rope_scaling = RopeScaling::kNone, model.rope_factor = 1; },
      [](ModelSpec& model) { model.rope_scaling = RopeScaling::kLinear; },
      [](ModelSpec& model) { model.rope_original_context = 64; },
      [](ModelSpec& model) { model.qk_norm = true; },
      [](ModelSpec& model) { model.qkv_bias = true; },
      [](ModelSpec& model) { model.family = ModelFamily::kGpt; },
  };
  for (const auto& change : changes) {
    ModelSpec model = OfFixture("llama3");
    change(model);
    if (model.family == ModelFamily::kGpt) {
      model = OfFixture("gpt2");
    }
    const auto text = WriteConfig(model, ExportType::kFp32, ConfigOf("llama3"));
    ASSERT_TRUE(text.ok()) << text.status();
    const ModelSpec read = MustParse(*text).model;
    EXPECT_EQ(read.rope_theta, model.rope_theta) << *text;
    EXPECT_EQ(read.rope_scaling, model.rope_scaling) << *text;
    EXPECT_EQ(read.qk_norm, model.qk_norm) << *text;
    EXPECT_EQ(read.qkv_bias, model.qkv_bias) << *text;
    EXPECT_EQ(read.family, model.family) << *text;
    EXPECT_THAT(*text, Not(HasSubstr("bos_token_id")));
  }
}

TEST(WriteConfig, KeysWithoutEffectDoNotMatter) {
  ModelSpec model = OfFixture("llama2");
  model.rope_factor = 3;  // of no scaling
  model.rope_original_context = 7;
  model.head_channels = 8;  // hidden / heads
  const auto text = WriteConfig(model, ExportType::kFp32, "");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(MustParse(*text).model, OfFixture("llama2"));
}

TEST(WriteConfig, HeadsOfOtherChannelsThanHiddenHas) {
  for (const std::string folder : {"llama2", "qwen2_5", "qwen3"}) {
    ModelSpec model = OfFixture(folder);
    model.head_channels = 6;
    for (const std::string& original : {std::string(), ConfigOf(folder)}) {
      const auto text = WriteConfig(model, ExportType::kFp32, original);
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(MustParse(*text).model, model) << *text;
    }
  }
  // transformers refuses a llama whose heads do not divide hidden_size. Mistral has its layers.
  ModelSpec model = OfFixture("llama2");
  model.heads = model.kv_heads = 3;
  model.head_channels = 10;
  const auto text = WriteConfig(model, ExportType::kFp32, "");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("\"model_type\": \"mistral\""),
                           HasSubstr("\"sliding_window\": null")));
  EXPECT_EQ(MustParse(*text).model, model);
}

TEST(WriteConfig, RefusesModelsThatTransformersDoesNotHave) {
  ModelSpec both = OfFixture("qwen3");
  both.qkv_bias = true;
  for (const std::string& original : {std::string(), ConfigOf("qwen3"), ConfigOf("qwen2_5")}) {
    const auto text = WriteConfig(both, ExportType::kFp32, original);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(Message(text.status())),
                HasSubstr("both model.qkv_bias and model.qk_norm"));
  }
  ModelSpec raw = OfFixture("mixtral");
  raw.normalize_router = false;
  EXPECT_THAT(std::string(Message(WriteConfig(raw, ExportType::kFp32, "").status())),
              HasSubstr("qkv_bias false and normalize_router false"));
  ModelSpec unknown = OfFixture("qwen3");
  unknown.vocabulary = std::nullopt;
  EXPECT_EQ(WriteConfig(unknown, ExportType::kFp32, "").status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const std::string original : {"{", "[]", "{\"model_type\": \"bert\"}"}) {
    EXPECT_EQ(WriteConfig(OfFixture("gpt2"), ExportType::kFp32, original).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(ExportType, Names) {
  EXPECT_EQ(ToString(ExportType::kFp32), "fp32");
  EXPECT_EQ(ToString(ExportType::kBf16), "bf16");
  EXPECT_EQ(ToString(ExportType::kFp16), "fp16");
}

}  // namespace
}  // namespace longhaul::published
