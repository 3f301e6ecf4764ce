#include "run/published/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace longhaul::published {
namespace {

constexpr size_t kMostValueBytes = 80;

// Keys that say nothing of what the model computes, or of dropout, which we never do.
const std::set<std::string_view> kWithoutEffect = {
    "_attn_implementation_autoset",
    "_name_or_path",
    "_num_labels",
    "_sliding_window_pattern",
    "architectures",
    "attention_dropout",
    "attn_pdrop",
    "bos_token_id",
    "cache_implementation",
    "decoder_start_token_id",
    "do_sample",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "label2id",
    "max_length",
    "model_type",
    "n_special",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "predict_special_tokens",
    "pretraining_tp",
    "reorder_and_upcast_attn",
    "resid_pdrop",
    "return_dict",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

}  // namespace

std::string TextOf(const nlohmann::json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.dump();
  return text.size() > kMostValueBytes ? fmt::format("a text of {} bytes", text.size()) : text;
}

void ConfigKeys::Fail(std::string_view key, const std::string& problem) {
  problems_ += fmt::format("{}{}: {}: {}", problems_.empty() ? "" : "\n", file_, key, problem);
}

const nlohmann::json* ConfigKeys::Find(const std::string& key) {
  seen_.insert(key);
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigKeys::IsNull(const std::string& key) const {
  const auto it = json_.find(key);
  return it != json_.end() && it->is_null();
}

uint32_t ConfigKeys::WholeOf(const std::string& key, const Json* value, uint32_t most,
                             std::optional<uint32_t> absent) {
  if (value == nullptr) {
    if (!absent) Fail(key, "expected a whole number, but the key is missing");
    return absent.value_or(1);
  }
  if (value->is_number_unsigned() && value->get<uint64_t>() >= 1 &&
      value->get<uint64_t>() <= most) {
    return static_cast<uint32_t>(value->get<uint64_t>());
  }
  Fail(key, fmt::format("expected a whole number from 1 to {}, got {}", most, TextOf(*value)));
  return 1;
}

double ConfigKeys::RealOf(const std::string& key, const Json* value, std::optional<double> absent) {
  if (value == nullptr) {
    if (!absent) Fail(key, "expected a number above 0, but the key is missing");
    return absent.value_or(1);
  }
  if (value->is_number() && value->get<double>() > 0 && std::isfinite(value->get<double>())) {
    return value->get<double>();
  }
  Fail(key, fmt::format("expected a number above 0, got {}", TextOf(*value)));
  return absent.value_or(1);
}

bool ConfigKeys::Flag(const std::string& key, bool absent) {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (value->is_boolean()) return value->get<bool>();
  Fail(key, fmt::format("expected true or false, got {}", TextOf(*value)));
  return absent;
}

void ConfigKeys::Require(const std::string& key, const std::vector<Json>& allowed) {
  const Json* value = Find(key);
  if (value == nullptr || std::find(allowed.begin(), allowed.end(), *value) != allowed.end()) {
    return;
  }
  std::vector<std::string> texts;
  for (const Json& one : allowed) texts.push_back(one.dump());
  Fail(key, fmt::format("got {}, and longhaul computes only models with {}", TextOf(*value),
                        fmt::join(texts, " or ")));
}

void ConfigKeys::RefuseOthers() {
  for (const auto& [key, value] : json_.items()) {
    if (seen_.contains(key) || kWithoutEffect.contains(key) || value.is_null()) continue;
    Fail(key,
         "longhaul does not know this key; if it changes nothing that the model computes, delete "
         "it from the file");
  }
}

Status ConfigKeys::ToStatus() const {
  return problems_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems_);
}

}  // namespace longhaul::published
