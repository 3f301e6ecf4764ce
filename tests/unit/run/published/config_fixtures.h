// The config.json of the models of tests/fixtures/models, and what they say.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "run/model/model_spec.h"
#include "run/published/config.h"

namespace longhaul::published {

using Json = nlohmann::json;

inline const std::vector<std::string> kFolders = {
    "gpt2",         "gpt2_sharded", "llama2",       "llama2_bf16", "llama3",    "mistral",
    "qwen2_5",      "qwen3",        "smollm3",      "mixtral",     "qwen2_moe", "qwen3_moe",
    "olmo2",        "phi3",         "phi3_long",    "gemma2",      "gemma3",    "mistral_window",
    "qwen2_window", "llama_yarn",   "llama_dynamic"};

inline std::string ConfigOf(const std::string& folder) {
  const auto text = ReadFile(std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/models/" + folder +
                             "/config.json");
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

// The fixture's config with other values. An empty pointer's value replaces all.
inline std::string With(const std::string& folder,
                        const std::vector<std::pair<std::string, Json>>& keys) {
  Json json = Json::parse(ConfigOf(folder));
  for (const auto& [key, value] : keys) json[key] = value;
  return json.dump();
}
inline std::string Without(const std::string& folder, const std::vector<std::string>& keys) {
  Json json = Json::parse(ConfigOf(folder));
  for (const std::string& key : keys) json.erase(key);
  return json.dump();
}

inline Config MustParse(const std::string& text) {
  const auto config = ParseConfig(text, "config.json");
  EXPECT_TRUE(config.ok()) << config.status() << "\n" << text;
  return config.value_or(Config());
}
inline std::string Refusal(const std::string& text) {
  const auto config = ParseConfig(text, "config.json");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(Message(config.status()));
}

inline ModelSpec OfExperts(const std::string& folder) {
  ModelSpec model;
  model.family = ModelFamily::kMoe;
  model.layers = 2;
  model.vocabulary = 96;
  model.context = 32;
  model.hidden = 16;
  model.heads = 4;
  model.kv_heads = 2;
  model.rope_theta = 1e6;
  model.norm_epsilon = folder == "mixtral" ? 1e-5 : 1e-6;
  model.qkv_bias = folder == "qwen2_moe";
  model.qk_norm = folder == "qwen3_moe";
  model.head_channels = folder == "qwen3_moe" ? 8 : 0;
  model.experts = folder == "mixtral" ? 4 : folder == "qwen2_moe" ? 5 : 6;
  model.experts_per_token = folder == "qwen3_moe" ? 3 : 2;
  model.expert_intermediate = folder == "mixtral" ? 12 : 8;
  model.shared_intermediate = folder == "qwen2_moe" ? 20 : 0;
  model.normalize_router = folder != "qwen2_moe";
  model.balance_loss = folder == "mixtral" ? 0.02 : 1e-3;
  return model;
}

inline ModelSpec OfGemma(const std::string& folder) {
  ModelSpec model;
  model.family = ModelFamily::kLlama;
  model.layers = folder == "gemma2" ? 4 : 3;
  model.vocabulary = 96;
  model.context = 32;
  model.hidden = 32;
  model.intermediate = 48;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_channels = 16;
  model.score_channels = 24;
  model.norm_epsilon = 1e-4;
  model.tied = model.norms_from_one = model.scale_embedding = true;
  model.norms = Norms::kBoth;
  model.activation = Activation::kGelu;
  model.window = 7;
  if (folder == "gemma2") {
    model.full_every = 2;
    model.attention_cap = 2;
    model.logit_cap = 1;
    return model;
  }
  model.full_every = 3;
  model.qk_norm = true;
  model.rope_theta_windowed = 100;
  model.rope_scaling = RopeScaling::kLinear;
  model.rope_factor = 4;
  return model;
}

// Models that differ from others in their rotary embeddings.
inline void SetRopeOfFixture(const std::string& folder, ModelSpec* model) {
  if (folder == "llama_yarn") {
    model->context = 64;
    model->rope_theta = 100;
    model->rope_scaling = RopeScaling::kYarn;
    model->rope_factor = 4;
    model->rope_original_context = 16;
    model->rope_beta_fast = 0.5;
    model->rope_beta_slow = 0.1;
  }
  if (folder == "llama_dynamic") {
    model->context = model->rope_original_context = 16;
    model->rope_scaling = RopeScaling::kDynamic;
    model->rope_factor = 2;
  }
  if (folder == "phi3_long") {
    model->context = 64;
    model->rope_scaling = RopeScaling::kLongrope;
    model->rope_factor = 4;
    model->rope_original_context = 16;
    model->rope_short_factors = {1, 1.25};
    model->rope_long_factors = {1.5, 4};
    model->rotary_channels = 4;
  }
}

inline ModelSpec OfFixture(const std::string& folder) {
  if (folder == "mixtral" || folder.ends_with("_moe")) return OfExperts(folder);
  if (folder.starts_with("gemma")) return OfGemma(folder);
  ModelSpec model;
  model.layers = 3;
  model.vocabulary = 96;
  model.context = folder == "llama3" ? 128 : 32;
  model.norm_epsilon = 1e-5;
  if (folder.starts_with("gpt2")) {
    model.hidden = 24;
    model.heads = 3;
    model.tied = true;
    return model;
  }
  model.family = ModelFamily::kLlama;
  model.hidden = 32;
  model.intermediate = 48;
  model.heads = 4;
  model.kv_heads = folder.starts_with("llama2") ? 4 : 2;
  model.tied = folder == "llama3" || folder == "smollm3" || folder == "phi3_long" ||
               folder.starts_with("qwen2") || folder == "llama_yarn" || folder == "llama_dynamic";
  if (folder == "llama3") {
    model.rope_theta = 100;
    model.rope_scaling = RopeScaling::kLlama3;
    model.rope_factor = 4;
    model.rope_original_context = 32;
  }
  if (folder == "mistral" || folder.starts_with("qwen")) model.rope_theta = 1e6;
  if (folder.starts_with("qwen") || folder == "smollm3" || folder == "olmo2") {
    model.norm_epsilon = 1e-6;
  }
  if (folder == "smollm3") {
    model.rope_theta = 5e6;
    model.nope_every = 2;
  }
  model.qkv_bias = folder.starts_with("qwen2");
  model.qk_norm = folder == "qwen3" || folder == "olmo2";
  if (folder == "olmo2") {
    model.rope_theta = 5e5;
    model.qk_norm_whole = true;
    model.norms = Norms::kPost;
  }
  model.stacked_matrices = folder.starts_with("phi3");
  if (folder.ends_with("_window") || folder == "phi3_long") model.window = 7;
  if (folder == "qwen2_window") model.window_from = 1;
  SetRopeOfFixture(folder, &model);
  if (folder == "qwen3") model.head_channels = 16;
  return model;
}

}  // namespace longhaul::published
