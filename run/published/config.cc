#include "run/published/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "run/model/family.h"
#include "run/published/config_json.h"
#include "run/published/config_keys.h"
#include "run/published/config_rope.h"
#include "run/published/config_types.h"
#include "run/published/config_window.h"
#include "run/published/wrong_file.h"

namespace longhaul::published {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kMostWhole = 1u << 31;  // of keys whose range model::Problems knows

Config Gpt2(ConfigKeys& keys) {
  Config config;
  ModelSpec& model = config.model;
  model.family = ModelFamily::kGpt;
  model.layers = keys.Whole("n_layer", model::kMostLayers, 12);
  model.hidden = keys.Whole("n_embd", model::kMostHidden, 768);
  model.heads = keys.Whole("n_head", model::kMostHeads, 12);
  model.context = keys.Whole("n_positions", model::kMostContext, 1024);
  model.vocabulary = keys.Whole("vocab_size", model::kMostVocabulary, 50257);
  model.tied = keys.Flag("tie_word_embeddings", true);
  model.norm_epsilon = keys.Real("layer_norm_epsilon", 1e-5);
  keys.Require("n_ctx", {model.context});
  keys.Require("n_inner", {4 * uint64_t{model.hidden}});
  keys.Require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  keys.Require("scale_attn_weights", {true});
  keys.Require("scale_attn_by_inverse_layer_idx", {false});
  keys.Require("add_cross_attention", {false});
  return config;
}

// The MLP of a model with experts.
void ReadExperts(ConfigKeys& keys, const ModelType& like, ModelSpec* model) {
  model->family = ModelFamily::kMoe;
  const bool mixtral = like.name == "mixtral";
  // Qwen's have the second name since transformers 5.
  const bool older = keys.Find("num_experts") != nullptr;
  model->experts =
      keys.Whole(older ? "num_experts" : "num_local_experts", kMostWhole, std::nullopt);
  model->experts_per_token = keys.Whole("num_experts_per_tok", kMostWhole, std::nullopt);
  model->expert_intermediate =
      keys.Whole(mixtral ? "intermediate_size" : "moe_intermediate_size", kMostWhole, std::nullopt);
  model->normalize_router = mixtral || keys.Flag("norm_topk_prob", false);
  constexpr const char* kBalance = "router_aux_loss_coef";
  if (const Json* balance = keys.Find(kBalance); balance != nullptr && *balance == 0) {
    model->balance = Balance::kNone;
  } else {
    model->balance_loss = keys.Real(kBalance, 1e-3);
  }
  // Whether transformers adds it to the loss that it reports.
  keys.Find("output_router_logits");
  if (mixtral) {
    keys.Require("router_jitter_noise", {0});
    return;
  }
  keys.Find("intermediate_size");  // of layers without experts
  keys.Require("decoder_sparse_step", {1});
  keys.Require("mlp_only_layers", std::vector<Json>{Json::array()});
  keys.Require("expert_interval", {1});
  keys.Require("shared_expert_gate", {true});
  keys.Require("use_qk_norm", {like.qk_norm});
  if (like.qk_norm) {
    keys.Require("qkv_bias", {false});
    keys.Require("shared_expert_intermediate_size", {0});
    return;
  }
  model->qkv_bias = keys.Flag("qkv_bias", true);
  model->shared_intermediate =
      keys.Whole("shared_expert_intermediate_size", kMostWhole, std::nullopt);
}

// A cap of scores: absent, the type's usual one; null, none.
double ReadCap(ConfigKeys& keys, const char* key, double usual) {
  return keys.Real(key, keys.IsNull(key) ? 0 : usual);
}

// What Gemma has and others do not. The third ignores the cap of attention's scores.
void ReadGemma(ConfigKeys& keys, const ModelType& like, ModelSpec* model) {
  model->norms_from_one = model->scale_embedding = true;
  model->activation = Activation::kGelu;
  model->score_channels = keys.Whole("query_pre_attn_scalar", kMostWhole, like.head_channels);
  constexpr const char* kCap = "attn_logit_softcapping";
  if (like.attention_cap > 0) {
    model->attention_cap = ReadCap(keys, kCap, like.attention_cap);
  } else {
    keys.Find(kCap);
  }
  model->logit_cap = ReadCap(keys, "final_logit_softcapping", like.logit_cap);
  keys.Require("hidden_activation", {"gelu_pytorch_tanh"});
  keys.Find("hidden_act");  // of older files; transformers reads the other key alone
  keys.Require("use_bidirectional_attention", {false});
}

Config Llama(const Json& json, ConfigKeys& keys, const ModelType& like) {
  Config config;
  ModelSpec& model = config.model;
  model.family = ModelFamily::kLlama;
  model.layers = keys.Whole("num_hidden_layers", model::kMostLayers, std::nullopt);
  model.hidden = keys.Whole("hidden_size", model::kMostHidden, std::nullopt);
  model.heads = keys.Whole("num_attention_heads", model::kMostHeads, std::nullopt);
  const bool as_heads = like.kv_heads == 0 || keys.IsNull("num_key_value_heads");
  model.kv_heads =
      keys.Whole("num_key_value_heads", kMostWhole, as_heads ? model.heads : like.kv_heads);
  model.context = keys.Whole("max_position_embeddings", model::kMostContext, like.context);
  model.vocabulary = keys.Whole("vocab_size", model::kMostVocabulary, std::nullopt);
  model.tied = keys.Flag("tie_word_embeddings", like.tied);
  model.norm_epsilon = keys.Real("rms_norm_eps", like.norm_epsilon);
  model.qkv_bias = like.qkv_bias;
  model.qk_norm = like.qk_norm;
  model.qk_norm_whole = like.qk_norm_whole;
  model.norms = like.norms;
  model.stacked_matrices = like.stacked_matrices;
  if (like.experts()) {
    ReadExperts(keys, like, &model);
  } else {
    model.intermediate = keys.Whole("intermediate_size", kMostWhole, std::nullopt);
  }
  model.head_channels = like.head_channels;
  if (keys.Find("head_dim") != nullptr) {
    model.head_channels = keys.Whole("head_dim", kMostWhole, std::nullopt);
  }
  ReadRope(keys, like, &model);
  if (like.nope_every > 0) {
    model.nope_every = ReadLayersWithoutRope(keys, like.nope_every, model.layers);
  }
  ReadWindow(json, keys, like, &model);
  if (like.of_gemma) {
    ReadGemma(keys, like, &model);
  } else {
    keys.Require("hidden_act", {"silu"});
  }
  keys.Require("attention_bias", {false});
  keys.Require("mlp_bias", {false});
  keys.Require("rope_interleaved", {false});
  if (like.stacked_matrices) {  // keys of Phi-4-mini
    keys.Require("full_attn_mod", {1});
    keys.Require("interpolate_factor", {1});
    keys.Require("lm_head_bias", {false});
  }
  keys.Require("use_mrope", {false});
  return config;
}

StatusOr<Config> ParsePublished(std::string_view text, std::string_view file_name) {
  const Json json = ParseJson<Json>(text);
  if (!json.is_object()) {
    const std::string_view other = WhatItIs(text);
    return InvalidArgument("{}: expected a JSON object, such as transformers writes{}{}", file_name,
                           other.empty() ? "" : "; ", other);
  }
  ConfigKeys keys(json, file_name);
  Config config;
  const Json* const named = keys.Find("model_type");
  const std::string type =
      named != nullptr && named->is_string() ? named->get<std::string>() : std::string();
  const ModelType* const known = FindModelType(type);
  if (known == nullptr) {
    const std::string_view missing = WhatIsMissing(type);
    return InvalidArgument(
        "{}: model_type: expected {}, got {}{}{}", file_name, NamesOfModelTypes(),
        named == nullptr ? "none" : TextOf(*named),
        missing.empty() ? "" : ", and longhaul does not compute what it has: ", missing);
  }
  config = known->family == ModelFamily::kGpt ? Gpt2(keys) : Llama(json, keys, *known);
  if (const Json* code = keys.Find("auto_map"); code != nullptr) {
    for (const char* model : {"AutoModelForCausalLM", "AutoModel"}) {
      const auto file = code->is_object() ? code->find(model) : code->end();
      if (!code->is_object() || file == code->end()) continue;
      if (!known->own_code.empty() && *file == known->own_code) continue;
      keys.Fail("auto_map", fmt::format("the model is computed by code of its own ({}: {}), which "
                                        "longhaul does not run; expected a model that transformers "
                                        "computes by itself",
                                        model, TextOf(*file)));
      break;
    }
  }
  if (keys.Find("quantization_config") != nullptr) {
    keys.Fail("quantization_config", "longhaul reads only weights that are not quantized");
  }
  keys.RefuseOthers();
  LH_RETURN_IF_ERROR(keys.ToStatus());
  config.model = Canonical(config.model);
  std::string problems;
  for (const model::Problem& problem : model::Problems(config.model)) {
    problems += fmt::format("{}{}: {}", problems.empty() ? "" : "\n", file_name, problem.text);
  }
  if (!problems.empty()) return absl::InvalidArgumentError(problems);
  return config;
}

}  // namespace

StatusOr<Config> ParseConfig(std::string_view text, std::string_view file_name) {
  LH_ASSIGN_OR_RETURN(const std::optional<OwnFile> own, ParseOwnFile(text, file_name));
  if (!own) return ParsePublished(text, file_name);
  LH_ASSIGN_OR_RETURN(Config config, ParsePublished(own->config_json, file_name));
  config.ranks = own->ranks;
  return config;
}

}  // namespace longhaul::published
