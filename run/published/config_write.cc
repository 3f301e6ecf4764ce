// Writes the config.json of an export.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/words.h"
#include "run/published/config.h"
#include "run/published/config_json.h"
#include "run/published/config_rope.h"
#include "run/published/config_types.h"
#include "run/published/config_window.h"

namespace longhaul::published {
namespace {

using Ordered = nlohmann::ordered_json;  // keeps the order of keys; slow with many of them

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

void WriteGemma(const ModelSpec& model, Ordered* json) {
  Ordered& out = *json;
  const auto cap = [](double value) { return value > 0 ? Ordered(value) : Ordered(nullptr); };
  out["hidden_activation"] = "gelu_pytorch_tanh";
  out["query_pre_attn_scalar"] =
      model.score_channels > 0 ? model.score_channels : model.HeadChannels();
  out["attn_logit_softcapping"] = cap(model.attention_cap);
  out["final_logit_softcapping"] = cap(model.logit_cap);
}

void WriteLlama(const ModelSpec& model, bool from_original, Ordered* json) {
  Ordered& out = *json;
  out["num_hidden_layers"] = model.layers;
  out["hidden_size"] = model.hidden;
  out["num_attention_heads"] = model.heads;
  out["num_key_value_heads"] = model.kv_heads;
  if (model.family == ModelFamily::kMoe) {
    WriteExperts(model, json);
  } else {
    out["intermediate_size"] = model.intermediate;
  }
  out["rms_norm_eps"] = model.norm_epsilon;
  if (model.activation == Activation::kSilu) out["hidden_act"] = "silu";
  out["head_dim"] = model.HeadChannels();
  if (model.nope_every > 0) {
    out["no_rope_layer_interval"] = model.nope_every;
    out["no_rope_layers"] = Ordered::array();
    for (uint32_t i = 0; i < model.layers; ++i) {
      out["no_rope_layers"].push_back(model.HasRotary(i) ? 1 : 0);
    }
  }
  // The original knows how far its positions go, and which layers have what; ours were trained as
  // far as the run's context.
  if (!from_original) {
    const ModelType& like = *FindModelType(out["model_type"].get<std::string>());
    out["max_position_embeddings"] = model.context;
    WriteRope(model, like, json);
    WriteWindow(model, like, json);
    if (like.of_gemma) WriteGemma(model, json);
  }
  // A key that transformers' qwen2 need not know, but heeds.
  if (model.qkv_bias && Canonical(model).head_channels == 0) out.erase("head_dim");
}

}  // namespace

StatusOr<std::string> WriteConfig(const ModelSpec& model, ExportType type,
                                  std::string_view original_file) {
  const std::string original = ConfigWithin(original_file);
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
    json = ParseJson<Ordered>(original);
  } else {
    LH_ASSIGN_OR_RETURN(const std::string_view model_type, ModelTypeOf(model));
    json["model_type"] = model_type;
    // The usual ones of some types are outside small vocabularies, which transformers refuses.
    if (model_type != "gpt2") json["pad_token_id"] = nullptr;
    json["architectures"] = Ordered::array({FindModelType(model_type)->architecture});
  }
  if (!model.vocabulary) {
    return absl::InvalidArgumentError("the export needs to know the rows of the vocabulary");
  }
  json["vocab_size"] = *model.vocabulary;
  json["tie_word_embeddings"] = model.tied;
  if (model.family == ModelFamily::kGpt) {
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
