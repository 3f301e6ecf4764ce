// What config.json says of models with experts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "run/model/family.h"
#include "run/published/config.h"
#include "tests/unit/run/published/config_fixtures.h"

namespace longhaul::published {
namespace {

// What the Hub's own files say.
TEST(ParseConfig, OfExpertsOnTheHub) {
  ModelSpec expected;
  const Config qwen3_moe = MustParse(R"({
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
    "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
    "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
    "use_sliding_window": false, "vocab_size": 151936})");
  for (const model::Preset& preset : model::Presets()) {
    if (preset.name == "qwen3-30b-a3b") expected = preset.model;
  }
  EXPECT_EQ(qwen3_moe.model, expected);

  const Config mixtral = MustParse(R"({
    "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral",
    "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
    "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.36.0.dev0", "use_cache": true, "vocab_size": 32000})");
  for (const model::Preset& preset : model::Presets()) {
    if (preset.name == "mixtral-8x7b") expected = preset.model;
  }
  EXPECT_EQ(mixtral.model, expected);

  const Config qwen2_moe = MustParse(R"({
    "architectures": ["Qwen2MoEForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "expert_interval": 1, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 5632, "max_position_embeddings": 8192,
    "max_window_layers": 21, "model_type": "qwen2_moe", "moe_intermediate_size": 1408,
    "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60,
    "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16,
    "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001, "shared_expert_gate": true,
    "shared_expert_intermediate_size": 5632, "sliding_window": 4096, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.39.0.dev0", "use_cache": true,
    "use_sliding_window": false, "vocab_size": 151936})");
  EXPECT_TRUE(qwen2_moe.model.qkv_bias);
  EXPECT_FALSE(qwen2_moe.model.normalize_router);
  EXPECT_EQ(qwen2_moe.model.experts, 60u);
  EXPECT_EQ(qwen2_moe.model.shared_intermediate, 5632u);
  EXPECT_EQ(qwen2_moe.model.window, 0u);
}

TEST(ParseConfig, OfExperts) {
  // transformers 5 has another name for it.
  Json older = Json::parse(Without("qwen3_moe", {"num_local_experts"}));
  older["num_experts"] = 6;
  EXPECT_EQ(MustParse(older.dump()).model, OfFixture("qwen3_moe"));
  const Config none = MustParse(With("mixtral", {{"router_aux_loss_coef", 0.0}}));
  EXPECT_EQ(none.model.balance, Balance::kNone);
  EXPECT_FALSE(MustParse(Without("qwen3_moe", {"norm_topk_prob"})).model.normalize_router);
}

TEST(WriteConfig, TheAuxiliaryLossIsTheRunsToSay) {
  for (const std::string folder : {"mixtral", "qwen2_moe", "qwen3_moe"}) {
    Json expected = Json::parse(ConfigOf(folder));
    ModelSpec model = OfFixture(folder);
    model.balance_loss = 0.5;
    expected["router_aux_loss_coef"] = 0.5;
    const auto with = WriteConfig(model, ExportType::kFp32, ConfigOf(folder));
    ASSERT_TRUE(with.ok()) << with.status();
    model.balance = Balance::kNone;
    const auto without = WriteConfig(model, ExportType::kFp32, ConfigOf(folder));
    ASSERT_TRUE(without.ok()) << without.status();
    for (const char* const key : {"head_dim", "qkv_bias"}) {
      if (!expected.contains(key) || expected[key].is_null()) {
        expected[key] = Json::parse(*with).value(key, Json());
      }
      if (expected[key].is_null()) expected.erase(key);
    }
    EXPECT_EQ(Json::parse(*with), expected);
    expected["router_aux_loss_coef"] = 0.0;
    EXPECT_EQ(Json::parse(*without), expected);
  }
}

}  // namespace
}  // namespace longhaul::published
