#include "run/published/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/words.h"
#include "run/model/family.h"
#include "run/published/config_keys.h"
#include "run/published/config_rope.h"

namespace longhaul::published {
namespace {

using enum ModelFamily;

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;  // of texts that are written: slow with many keys

constexpr uint32_t kMostWhole = 1u << 31;  // of keys whose range model::Problems knows
constexpr int kMostDepth = 32;

// Discarded where the text is no JSON, or nested so deeply that writing it would exhaust the stack.
template <class AnyJson>
AnyJson Parse(std::string_view text) {
  bool deep = false;
  const auto check = [&](int depth, typename AnyJson::parse_event_t, AnyJson&) {
    deep = deep || depth > kMostDepth;
    return !deep;
  };
  AnyJson json = AnyJson::parse(text, check, /*allow_exceptions=*/false);
  return deep ? AnyJson(AnyJson::value_t::discarded) : json;
}

Config Gpt2(ConfigKeys& keys) {
  Config config;
  ModelSpec& model = config.model;
  model.family = kGpt;
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

// A model of transformers, and what an absent key of its config.json means.
struct ModelType {
  std::string_view name, architecture;
  ModelFamily family;
  // The following ones are those of Llama's kin.
  uint32_t kv_heads = 0;       // 0: as many as heads
  uint32_t head_channels = 0;  // 0: hidden / heads
  double rope_theta = 1e4;
  uint32_t context = 0;
  bool qkv_bias = false, qk_norm = false;
  std::optional<uint32_t> window = std::nullopt;
  double norm_epsilon = 1e-6;
  uint32_t nope_every = 0;

  bool experts() const { return family == kMoe; }
};
constexpr ModelType kModelTypes[] = {
    {"gpt2", "GPT2LMHeadModel", kGpt},
    {"llama", "LlamaForCausalLM", kLlama, 0, 0, 1e4, 2048},
    {"mistral", "MistralForCausalLM", kLlama, 8, 0, 1e4, 131072, false, false, 4096},
    {"qwen2", "Qwen2ForCausalLM", kLlama, 32, 0, 1e4, 32768, true, false, 4096},
    {"qwen3", "Qwen3ForCausalLM", kLlama, 32, 128, 1e4, 32768, false, true, 4096},
    {.name = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .family = kLlama,
     .kv_heads = 4,
     .rope_theta = 2e6,
     .context = 32768,
     .nope_every = 4},
    {"mixtral", "MixtralForCausalLM", kMoe, 8, 0, 1e6, 131072, false, false, std::nullopt, 1e-5},
    {"qwen2_moe", "Qwen2MoeForCausalLM", kMoe, 16, 0, 1e4, 32768, true, false, 4096},
    {"qwen3_moe", "Qwen3MoeForCausalLM", kMoe, 4, 0, 1e4, 32768, false, true, 4096},
};

// Null: longhaul does not know the name.
const ModelType* FindModelType(std::string_view name) {
  const auto* const found = std::ranges::find(kModelTypes, name, &ModelType::name);
  return found == std::end(kModelTypes) ? nullptr : found;
}

// Whether `layer_types` names a layer that attends to a window alone.
bool NamesSliding(const Json& types, ConfigKeys& keys) {
  if (!types.is_array()) {
    keys.Fail("layer_types", fmt::format("expected a list, got {}", TextOf(types)));
    return false;
  }
  bool slides = false;
  for (const Json& type : types) {
    if (type == "sliding_attention") {
      slides = true;
    } else if (type != "full_attention") {
      keys.Fail("layer_types",
                fmt::format("got {}, and longhaul computes only full_attention", TextOf(type)));
      break;
    }
  }
  return slides;
}

// Layers that attend to a window, all or some: what counts is whether any does. Qwen's layers have
// one where `use_sliding_window` says so, and then those that `layer_types` names, or else those
// from `max_window_layers` on. Mistral's all have it, whatever `layer_types` says.
std::optional<uint32_t> ReadWindow(const Json& json, ConfigKeys& keys, const ModelType& like,
                                   uint32_t layers) {
  std::optional<uint32_t> window = json.contains("sliding_window") ? std::nullopt : like.window;
  // Qwen's models with experts set the window to 0 here, and the other keys then mean nothing.
  if (like.experts() && like.window && !keys.Flag("use_sliding_window", false)) {
    for (const char* const key : {"sliding_window", "max_window_layers", "layer_types"}) {
      keys.Find(key);
    }
    return std::nullopt;
  }
  if (keys.Find("sliding_window") != nullptr) {
    window = keys.Whole("sliding_window", kMostWhole, std::nullopt);
  }
  const Json* types = keys.Find("layer_types");
  const bool named = types != nullptr && NamesSliding(*types, keys);
  const bool by_flag = like.qkv_bias || like.qk_norm || like.nope_every > 0;
  if (!by_flag) return window;
  // Which layers of those with experts have it differs from version to version of transformers.
  if (like.experts()) {
    keys.Find("max_window_layers");
    return window;
  }
  uint64_t full = 28;  // layers before those with a window
  if (const Json* said = keys.Find("max_window_layers"); said != nullptr) {
    if (said->is_number_unsigned()) {
      full = said->get<uint64_t>();
    } else {
      keys.Fail("max_window_layers", fmt::format("expected a whole number, got {}", TextOf(*said)));
    }
  }
  const bool slides = types != nullptr ? named : full < layers;
  return keys.Flag("use_sliding_window", false) && slides ? window : std::nullopt;
}

// The MLP of a model with experts.
void ReadExperts(ConfigKeys& keys, const ModelType& like, ModelSpec* model) {
  model->family = kMoe;
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

Config Llama(const Json& json, ConfigKeys& keys, const ModelType& like) {
  Config config;
  ModelSpec& model = config.model;
  model.family = kLlama;
  model.layers = keys.Whole("num_hidden_layers", model::kMostLayers, std::nullopt);
  model.hidden = keys.Whole("hidden_size", model::kMostHidden, std::nullopt);
  model.heads = keys.Whole("num_attention_heads", model::kMostHeads, std::nullopt);
  const bool as_heads = like.kv_heads == 0 || keys.IsNull("num_key_value_heads");
  model.kv_heads =
      keys.Whole("num_key_value_heads", kMostWhole, as_heads ? model.heads : like.kv_heads);
  model.context = keys.Whole("max_position_embeddings", model::kMostContext, like.context);
  model.vocabulary = keys.Whole("vocab_size", model::kMostVocabulary, std::nullopt);
  model.tied = keys.Flag("tie_word_embeddings", false);
  model.norm_epsilon = keys.Real("rms_norm_eps", like.norm_epsilon);
  model.qkv_bias = like.qkv_bias;
  model.qk_norm = like.qk_norm;
  if (like.experts()) {
    ReadExperts(keys, like, &model);
  } else {
    model.intermediate = keys.Whole("intermediate_size", kMostWhole, std::nullopt);
  }
  model.head_channels = like.head_channels;
  if (keys.Find("head_dim") != nullptr) {
    model.head_channels = keys.Whole("head_dim", kMostWhole, std::nullopt);
  }
  ReadRope(keys, like.rope_theta, &model);
  if (like.nope_every > 0) {
    model.nope_every = ReadLayersWithoutRope(keys, like.nope_every, model.layers);
  }
  config.window = ReadWindow(json, keys, like, model.layers);
  keys.Require("hidden_act", {"silu"});
  keys.Require("attention_bias", {false});
  keys.Require("mlp_bias", {false});
  keys.Require("partial_rotary_factor", {1.0});
  keys.Require("rope_interleaved", {false});
  keys.Require("use_mrope", {false});
  return config;
}

// Fields that change nothing have the values that they begin with: models that compute the same
// are equal.
ModelSpec Canonical(ModelSpec model) {
  const ModelSpec usual;
  if (uint64_t{model.head_channels} * model.heads == model.hidden) model.head_channels = 0;
  if (model.rope_scaling == RopeScaling::kNone) model.rope_factor = usual.rope_factor;
  if (model.rope_scaling != RopeScaling::kLlama3) {
    model.rope_low_frequency = usual.rope_low_frequency;
    model.rope_high_frequency = usual.rope_high_frequency;
    model.rope_original_context = usual.rope_original_context;
  }
  if (model.balance == Balance::kNone) model.balance_loss = usual.balance_loss;
  model.balance_rate = usual.balance_rate;
  return model;
}

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

// transformers' name of what the model is, where it has one.
StatusOr<std::string_view> ModelTypeOf(const ModelSpec& model) {
  if (model.family == kGpt) return "gpt2";
  if (model.family == kMoe) return ModelTypeOfExperts(model);
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
  // heads.
  return model.hidden % model.heads == 0 ? "llama" : "mistral";
}

std::string_view TorchName(ExportType type) {
  return WordOf(type, {"float32", "bfloat16", "float16"});
}

void WriteGpt2(const ModelSpec& model, Ordered* json) {
  Ordered& out = *json;
  out["n_layer"] = model.layers;
  out["n_embd"] = model.hidden;
  out["n_head"] = model.heads;
  out["n_positions"] = model.context;
  if (out.contains("n_ctx")) out["n_ctx"] = model.context;
  out["layer_norm_epsilon"] = model.norm_epsilon;
  out["activation_function"] = "gelu_new";
}

void WriteExperts(const ModelSpec& model, Ordered* json) {
  Ordered& out = *json;
  const bool mixtral = out["model_type"] == "mixtral";
  const bool newer = mixtral || out.contains("num_local_experts");
  out[newer ? "num_local_experts" : "num_experts"] = model.experts;
  out["num_experts_per_tok"] = model.experts_per_token;
  out[mixtral ? "intermediate_size" : "moe_intermediate_size"] = model.expert_intermediate;
  out["router_aux_loss_coef"] = model.balance == Balance::kNone ? 0 : model.balance_loss;
  if (mixtral) return;
  out["norm_topk_prob"] = model.normalize_router;
  if (model.shared_intermediate == 0) return;
  out["shared_expert_intermediate_size"] = model.shared_intermediate;
  out["qkv_bias"] = model.qkv_bias;
}

void WriteLlama(const ModelSpec& model, bool from_original, Ordered* json) {
  Ordered& out = *json;
  out["num_hidden_layers"] = model.layers;
  out["hidden_size"] = model.hidden;
  out["num_attention_heads"] = model.heads;
  out["num_key_value_heads"] = model.kv_heads;
  if (model.family == kMoe) {
    WriteExperts(model, json);
  } else {
    out["intermediate_size"] = model.intermediate;
  }
  out["rms_norm_eps"] = model.norm_epsilon;
  out["hidden_act"] = "silu";
  out["head_dim"] = model.HeadChannels();
  if (model.nope_every > 0) {
    out["no_rope_layer_interval"] = model.nope_every;
    out["no_rope_layers"] = Ordered::array();
    for (uint32_t i = 0; i < model.layers; ++i) {
      out["no_rope_layers"].push_back(model.HasRotary(i) ? 1 : 0);
    }
  }
  // The original knows how far its positions go; ours were trained as far as the run's context.
  if (!from_original) {
    out["max_position_embeddings"] = model.context;
    // Readers before transformers 5 look for these two, later ones take them, too.
    out["rope_theta"] = model.rope_theta;
    if (model.rope_scaling == RopeScaling::kLinear) {
      out["rope_scaling"] = {{"rope_type", "linear"}, {"factor", model.rope_factor}};
    } else if (model.rope_scaling == RopeScaling::kLlama3) {
      out["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", model.rope_factor},
                             {"low_freq_factor", model.rope_low_frequency},
                             {"high_freq_factor", model.rope_high_frequency},
                             {"original_max_position_embeddings", model.rope_original_context}};
    }
  }
  // A key that transformers' qwen2 need not know, but heeds.
  if (model.qkv_bias && Canonical(model).head_channels == 0) out.erase("head_dim");
}

}  // namespace

StatusOr<Config> ParseConfig(std::string_view text, std::string_view file_name) {
  const Json json = Parse<Json>(text);
  if (!json.is_object()) {
    return InvalidArgument("{}: expected a JSON object, such as transformers writes", file_name);
  }
  ConfigKeys keys(json, file_name);
  Config config;
  const Json* const named = keys.Find("model_type");
  const std::string type =
      named != nullptr && named->is_string() ? named->get<std::string>() : std::string();
  const ModelType* const known = FindModelType(type);
  if (known == nullptr) {
    return InvalidArgument(
        "{}: model_type: expected gpt2, llama, mistral, qwen2, qwen3, smollm3, mixtral, "
        "qwen2_moe or qwen3_moe, got {}",
        file_name, named == nullptr ? "none" : TextOf(*named));
  }
  config = known->family == kGpt ? Gpt2(keys) : Llama(json, keys, *known);
  if (const Json* code = keys.Find("auto_map"); code != nullptr) {
    for (const char* model : {"AutoModelForCausalLM", "AutoModel"}) {
      const auto file = code->is_object() ? code->find(model) : code->end();
      if (!code->is_object() || file == code->end()) continue;
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

StatusOr<std::string> WriteConfig(const ModelSpec& model, ExportType type,
                                  std::string_view original) {
  if (model.balance == Balance::kBias) {
    return absl::FailedPreconditionError(
        "transformers has no model whose experts are chosen by model.balance: bias; the export "
        "needs a run with loss or none");
  }
  Ordered json = Ordered::object();
  if (!original.empty()) {
    LH_ASSIGN_OR_RETURN(Config from, ParseConfig(original, "the original config.json"));
    // What a run may change of it.
    from.model.vocabulary = model.vocabulary;
    from.model.context = model.context;
    from.model.tied = model.tied;
    from.model.balance = model.balance;
    from.model.balance_loss = Canonical(model).balance_loss;
    if (from.model != Canonical(model)) return WriteConfig(model, type, "");
    json = Parse<Ordered>(original);
  } else {
    LH_ASSIGN_OR_RETURN(const std::string_view model_type, ModelTypeOf(model));
    json["model_type"] = model_type;
    if (model_type == "mistral") json["sliding_window"] = nullptr;
    json["architectures"] = Ordered::array({FindModelType(model_type)->architecture});
  }
  if (!model.vocabulary) {
    return absl::InvalidArgumentError("the export needs to know the rows of the vocabulary");
  }
  json["vocab_size"] = *model.vocabulary;
  json["tie_word_embeddings"] = model.tied;
  if (model.family == kGpt) {
    WriteGpt2(model, &json);
  } else {
    WriteLlama(model, !original.empty(), &json);
  }
  // transformers before 5 looks for the older key alone, later ones take either.
  const char* const key = json.contains("dtype") ? "dtype" : "torch_dtype";
  if (json.contains("dtype")) json.erase("torch_dtype");
  json[key] = TorchName(type);
  std::string text = json.dump(2) + "\n";
  // What stands there is what a reader will make of it.
  LH_ASSIGN_OR_RETURN(Config read, ParseConfig(text, "the config.json of the export"));
  read.model.context = model.context;
  if (read.model == Canonical(model)) return text;
  return absl::FailedPreconditionError(
      "transformers has no model that computes what this one does; the export needs one of the "
      "shapes that import reads");
}

}  // namespace longhaul::published
