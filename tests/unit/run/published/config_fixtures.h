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
    "gpt2",    "gpt2_sharded", "llama2",  "llama2_bf16", "llama3",    "mistral",
    "qwen2_5", "qwen3",        "smollm3", "mixtral",     "qwen2_moe", "qwen3_moe"};

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

inline ModelSpec OfFixture(const std::string& folder) {
  if (folder == "mixtral" || folder.ends_with("_moe")) return OfExperts(folder);
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
  model.tied = folder == "llama3" || folder == "qwen2_5" || folder == "smollm3";
  if (folder == "llama3") {
    model.rope_theta = 100;
    model.rope_scaling = RopeScaling::kLlama3;
    model.rope_factor = 4;
    model.rope_original_context = 32;
  }
  if (folder == "mistral" || folder.starts_with("qwen")) model.rope_theta = 1e6;
  if (folder.starts_with("qwen") || folder == "smollm3") model.norm_epsilon = 1e-6;
  if (folder == "smollm3") {
    model.rope_theta = 5e6;
    model.nope_every = 2;
  }
  model.qkv_bias = folder == "qwen2_5";
  model.qk_norm = folder == "qwen3";
  if (folder == "qwen3") model.head_channels = 16;
  return model;
}

}  // namespace longhaul::published
