#include "run/published/config_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace longhaul::published {
namespace {

constexpr ModelType kModelTypes[] = {
    {.name = "gpt2", .architecture = "GPT2LMHeadModel", .family = ModelFamily::kGpt},
    {.name = "llama", .architecture = "LlamaForCausalLM", .context = 2048},
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .context = 131072,
     .window = 4096,
     .windows = Windows::kByTypes},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .context = 32768,
     .window = 4096,
     .qkv_bias = true,
     .windows = Windows::kByFirst},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .kv_heads = 32,
     .head_channels = 128,
     .context = 32768,
     .window = 4096,
     .qk_norm = true,
     .windows = Windows::kByFirst},
    {.name = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .kv_heads = 4,
     .rope_theta = 2e6,
     .context = 32768,
     .nope_every = 4,
     .windows = Windows::kNamed},
    {.name = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .context = 2048,
     .norm_epsilon = 1e-5,
     .qk_norm = true,
     .qk_norm_whole = true,
     .norms = Norms::kPost},
    {.name = "phi3",
     .architecture = "Phi3ForCausalLM",
     .context = 4096,
     .norm_epsilon = 1e-5,
     .stacked_matrices = true,
     .windows = Windows::kAll,
     .own_code = "modeling_phi3.Phi3ForCausalLM"},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .kv_heads = 4,
     .head_channels = 256,
     .context = 8192,
     .tied = true,
     .window = 4096,
     .norms = Norms::kBoth,
     .of_gemma = true,
     .windows = Windows::kByTypes,
     .full_every = 2,
     .attention_cap = 50,
     .logit_cap = 30},
    {.name = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .kv_heads = 4,
     .head_channels = 256,
     .rope_theta = 1e6,
     .rope_theta_windowed = 1e4,
     .context = 131072,
     .tied = true,
     .window = 4096,
     .qk_norm = true,
     .norms = Norms::kBoth,
     .of_gemma = true,
     .windows = Windows::kByTypes,
     .full_every = 6},
    {.name = "mixtral",
     .architecture = "MixtralForCausalLM",
     .family = ModelFamily::kMoe,
     .kv_heads = 8,
     .rope_theta = 1e6,
     .context = 131072,
     .norm_epsilon = 1e-5,
     .windows = Windows::kAll},
    {.name = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .family = ModelFamily::kMoe,
     .kv_heads = 16,
     .context = 32768,
     .window = 4096,
     .qkv_bias = true,
     .windows = Windows::kNamed},
    {.name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .family = ModelFamily::kMoe,
     .kv_heads = 4,
     .context = 32768,
     .window = 4096,
     .qk_norm = true,
     .windows = Windows::kByFlag},
};

// Models that people ask for, and what their layers have that longhaul does not compute.
constexpr struct {
  std::string_view name, missing;
} kMissing[] = {
    {"gpt_oss",
     "attention sinks (a learned score beside those of tokens), experts with biases and a clamped "
     "gate, and weights in MXFP4"},
    {"deepseek_v2",
     "latent attention (keys and values through one small matrix) and experts chosen in groups"},
    {"deepseek_v3",
     "latent attention (keys and values through one small matrix), experts chosen in groups by "
     "sigmoid scores, and weights in blocks of FP8"},
    {"kimi_k2", "DeepSeek-V3's latent attention and experts chosen in groups"},
    {"gemma", "no version of Gemma before the second; Gemma 2 and Gemma 3 (gemma3_text) it does"},
    {"gemma3",
     "images; of this model's text part there are checkpoints of the type gemma3_text, which it "
     "does read"},
    {"gemma3n", "layers with several residual streams and embeddings of their own"},
    {"gemma4", "images, and layers that share keys and values"},
    {"llama4", "images, experts in every other layer, and attention in chunks"},
    {"mistral3", "images; its text part alone has the type mistral"},
    {"ministral3", "scores that grow with the position"},
    {"phi", "LayerNorm with attention and MLP side by side"},
    {"phimoe", "LayerNorm before experts that are chosen by sparse mixing"},
    {"olmo", "norms without weights"},
    {"olmoe", "experts behind norms of whole queries and keys"},
    {"olmo3", "rotary embeddings that are stretched in layers without a window alone"},
    {"qwen3_next", "linear attention (gated delta rule) in three of four layers"},
    {"qwen2_vl", "images"},
    {"qwen2_5_vl", "images"},
    {"qwen3_vl", "images"},
    {"mamba", "state-space layers"},
    {"mamba2", "state-space layers"},
    {"jamba", "state-space layers"},
    {"falcon", "attention and MLP side by side"},
    {"gpt_neox", "attention and MLP side by side, with LayerNorm"},
    {"gptj", "attention and MLP side by side, with LayerNorm"},
    {"opt", "learned positions with an offset, and ReLU"},
    {"bloom", "scores that fall with the distance (ALiBi)"},
    {"starcoder2", "LayerNorm with biases in every product"},
    {"cohere", "attention and MLP side by side, with LayerNorm"},
    {"glm4", "rotary embeddings of neighbouring channels, and norms in other places"},
};

StatusOr<std::string_view> ModelTypeOfExperts(const ModelSpec& model) {
  const bool shared = model.shared_intermediate > 0;
  if (shared && !model.qk_norm) return "qwen2_moe";
  if (!shared && model.qk_norm && !model.qkv_bias) return "qwen3_moe";
  if (!shared && !model.qk_norm && !model.qkv_bias && model.normalize_router) return "mixtral";
  return FailedPrecondition(
      "transformers has no model of experts with model.shared_intermediate {}, qk_norm {}, "
      "qkv_bias {} and normalize_router {}; the export needs Qwen2-MoE's shared expert without "
      "qk_norm, or Qwen3-MoE's qk_norm alone, or neither, nor qkv_bias, with normalize_router",
      model.shared_intermediate, model.qk_norm, model.qkv_bias, model.normalize_router);
}

}  // namespace

const ModelType* FindModelType(std::string_view name) {
  const auto* const found = std::ranges::find(kModelTypes, name, &ModelType::name);
  return found == std::end(kModelTypes) ? nullptr : found;
}

std::string_view WhatIsMissing(std::string_view name) {
  for (const auto& one : kMissing) {
    if (one.name == name) return one.missing;
  }
  return "";
}

std::string NamesOfModelTypes() {
  std::string names;
  for (const ModelType& type : kModelTypes) {
    const bool last = &type + 1 == std::end(kModelTypes);
    names += fmt::format("{}{}", names.empty() ? "" : last ? " or " : ", ", type.name);
  }
  return names;
}

StatusOr<std::string_view> ModelTypeOf(const ModelSpec& model) {
  if (model.family == ModelFamily::kGpt) return "gpt2";
  if (model.family == ModelFamily::kMoe) return ModelTypeOfExperts(model);
  if (model.norms == Norms::kPost) return "olmo2";
  if (model.norms == Norms::kBoth) return model.qk_norm ? "gemma3_text" : "gemma2";
  if (model.stacked_matrices) return "phi3";
  if (model.nope_every > 0) {
    if (!model.qkv_bias && !model.qk_norm) return "smollm3";
    return absl::FailedPreconditionError(
        "transformers has no model with model.nope_every and one of model.qkv_bias and "
        "model.qk_norm; the export needs a model without these two");
  }
  if (model.qkv_bias && model.qk_norm) {
    return absl::FailedPreconditionError(
        "transformers has no model with both model.qkv_bias and model.qk_norm; the export needs a "
        "model that has one of them");
  }
  if (model.qkv_bias) return "qwen2";
  if (model.qk_norm) return "qwen3";
  // The same layers; but transformers refuses a llama whose hidden_size is no multiple of its
  // heads, and has no window in it.
  return model.hidden % model.heads == 0 && model.window == 0 ? "llama" : "mistral";
}

bool FitWindows(const std::vector<bool>& windowed, ModelSpec* model) {
  const auto fits = [&] {
    for (uint32_t layer = 0; layer < windowed.size(); ++layer) {
      if (model->HasWindow(layer) != windowed[layer]) return false;
    }
    return true;
  };
  const auto first = std::ranges::find(windowed, true);
  if (first == windowed.end()) {
    model->window = model->window_from = model->full_every = 0;
    return true;
  }
  for (const auto from : {uint32_t{0}, static_cast<uint32_t>(first - windowed.begin())}) {
    model->window_from = from;
    for (uint32_t every = 0; every <= windowed.size(); ++every) {
      model->full_every = every;
      if (every != 1 && fits()) return true;
    }
  }
  model->window_from = model->full_every = 0;
  return false;
}

ModelSpec Canonical(ModelSpec model) {
  using enum RopeScaling;
  const ModelSpec usual;
  if (uint64_t{model.head_channels} * model.heads == model.hidden) model.head_channels = 0;
  if (model.rotary_channels == model.HeadChannels()) model.rotary_channels = 0;
  if (model.score_channels == model.HeadChannels()) model.score_channels = 0;
  const RopeScaling scaling = model.rope_scaling;
  if (scaling == kNone) model.rope_factor = usual.rope_factor;
  if (scaling != kLlama3) {
    model.rope_low_frequency = usual.rope_low_frequency;
    model.rope_high_frequency = usual.rope_high_frequency;
  }
  if (scaling == kNone || scaling == kLinear) {
    model.rope_original_context = usual.rope_original_context;
  }
  if (scaling != kYarn) {
    model.rope_beta_fast = usual.rope_beta_fast;
    model.rope_beta_slow = usual.rope_beta_slow;
    model.rope_whole_pairs = usual.rope_whole_pairs;
  }
  if (scaling != kYarn && scaling != kLongrope) {
    model.rope_attention_factor = usual.rope_attention_factor;
  }
  if (scaling != kLongrope) {
    model.rope_short_factors.clear();
    model.rope_long_factors.clear();
  }
  std::vector<bool> windowed;
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    windowed.push_back(model.HasWindow(layer));
  }
  FitWindows(windowed, &model);
  if (model.window == 0) model.rope_theta_windowed = usual.rope_theta_windowed;
  if (model.balance == Balance::kNone) model.balance_loss = usual.balance_loss;
  model.balance_rate = usual.balance_rate;
  return model;
}

}  // namespace longhaul::published
