#include "run/published/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.h"
#include "run/model/family.h"
#include "run/model/lora.h"
#include "run/published/config_json.h"
#include "run/published/config_keys.h"

namespace longhaul::published {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostAdapterConfigBytes = 1 << 20;
constexpr uint32_t kMostAdapterRank = 4096;
constexpr double kMostAlpha = 1e6;
constexpr size_t kMostTargets = 1 << 16;
constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kTensorFile = "adapter_model.safetensors";

// Settings that say how the adapters came to be, or how PEFT trains, loads and names them. They
// change nothing that is computed with the adapters' numbers.
constexpr const char* kOfTrainingAlone[] = {
    "auto_mapping", "base_model_name_or_path", "corda_config",    "ensure_weight_tying",
    "eva_config",   "fan_in_fan_out",          "inference_mode",  "layers_pattern",
    "loftq_config", "lora_ga_config",          "megatron_config", "megatron_core",
    "peft_version", "qalora_group_size",       "revision",        "runtime_config",
    "task_type"};

// A setting that longhaul has only without effect, and what it does otherwise.
struct Unsupported {
  const char* key;
  const char* effect;
};
constexpr Unsupported kUnsupported[] = {
    {"use_dora", "scales the rows of adapted matrices (DoRA)"},
    {"use_qalora", "pools the adapters' inputs (QALoRA)"},
    {"use_bdlora", "makes the adapters block-diagonal"},
    {"lora_bias", "gives the adapters biases"},
    {"modules_to_save", "trains whole modules beside the adapters"},
    {"layers_to_transform", "adapts only some layers"},
    {"layer_replication", "repeats layers of the model"},
    {"exclude_modules", "leaves some modules out"},
    {"target_parameters", "adapts parameters that are no modules"},
    {"trainable_token_indices", "trains rows of the embedding"},
    {"alora_invocation_tokens", "uses the adapters only after certain tokens"},
    {"arrow_config", "chooses among several adapters"}};

bool HasNoEffect(const Json& value) {
  return value == false || ((value.is_array() || value.is_object()) && value.empty());
}

// The value's text for messages, with its parts.
std::string WholeText(const Json& value) {
  constexpr size_t kMost = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() > kMost ? fmt::format("{}...", text.substr(0, kMost)) : text;
}

void RefuseUnsupported(ConfigKeys& keys) {
  for (const auto& [key, effect] : kUnsupported) {
    const Json* const value = keys.Find(key);
    if (value == nullptr || HasNoEffect(*value)) continue;
    keys.Fail(key, fmt::format("expected none, got {}; this setting {}, which longhaul does not; "
                               "begin with adapters that were made without it",
                               WholeText(*value), effect));
  }
  if (const Json* bias = keys.Find("bias"); bias != nullptr && *bias != "none") {
    keys.Fail("bias", fmt::format("expected \"none\", got {}; longhaul trains no biases beside "
                                  "adapters; begin with adapters that were made with bias none",
                                  WholeText(*bias)));
  }
  // Some kinds of first values change the model itself before the adapters are added.
  const Json* const initial = keys.Find("init_lora_weights");
  if (initial == nullptr || !initial->is_string()) return;
  const std::string kind = initial->get<std::string>();
  for (const char* const one : {"pissa", "olora", "corda", "loftq", "lora_ga"}) {
    if (!kind.starts_with(one)) continue;
    keys.Fail("init_lora_weights",
              fmt::format("expected adapters of the published model, got {}, with which PEFT "
                          "changes the model itself; let PEFT convert the adapters first "
                          "(save_pretrained with path_initial_model_for_weight_conversion)",
                          WholeText(*initial)));
  }
}

std::vector<std::string> TargetsFrom(const Json* value, ConfigKeys& keys) {
  const std::string expected =
      "expected a list of modules' names, such as [\"q_proj\", \"v_proj\"], or \"all-linear\"";
  if (value != nullptr && *value == "all-linear") return {"all-linear"};
  if (value != nullptr && value->is_string()) {
    keys.Fail("target_modules",
              fmt::format("{}, got the pattern {}; write the names that it matches", expected,
                          WholeText(*value)));
    return {};
  }
  std::vector<std::string> targets;
  std::set<std::string> seen;
  bool sound =
      value != nullptr && value->is_array() && !value->empty() && value->size() <= kMostTargets;
  if (sound) {
    for (const Json& one : *value) {
      sound = sound && one.is_string() && !one.get<std::string>().empty();
      if (sound && seen.insert(one.get<std::string>()).second) {
        targets.push_back(one.get<std::string>());
      }
    }
  }
  if (!sound) {
    keys.Fail("target_modules",
              fmt::format("{}, got {}", expected, value == nullptr ? "none" : WholeText(*value)));
    return {};
  }
  return targets;
}

double DropoutFrom(const Json* value, ConfigKeys& keys) {
  if (value == nullptr) return 0;
  const double share = value->is_number() ? value->get<double>() : -1;
  if (share >= 0 && share < 1) return share;
  keys.Fail("lora_dropout",
            fmt::format("expected a number from 0 to below 1, got {}", WholeText(*value)));
  return 0;
}

// Lines of what is wrong.
void AddLine(const std::string& line, std::string* lines) {
  *lines += (lines->empty() ? "" : "\n") + line;
}

// Refuses patterns, except those with which WriteAdapters writes this model.
void CheckPatterns(const ModelSpec& adapted, ConfigKeys& keys) {
  Json ranks = Json::object(), alphas = Json::object();
  for (const StackedModule& module : StackedModulesOf(adapted)) {
    ranks[module.name] = module.rank;
    alphas[module.name] = module.alpha;
  }
  const Json *const rank = keys.Find("rank_pattern"), *const alpha = keys.Find("alpha_pattern");
  if (rank != nullptr && alpha != nullptr && *rank == ranks && *alpha == alphas) return;
  for (const auto& [key, value] : {std::pair("rank_pattern", rank), {"alpha_pattern", alpha}}) {
    if (value == nullptr || HasNoEffect(*value)) continue;
    keys.Fail(key, fmt::format("expected none, got {}; longhaul's adapters all have one rank and "
                               "one alpha; begin with adapters that were made without it",
                               WholeText(*value)));
  }
}

// Checks that B is block-diagonal for each module that WriteAdapters has stacked. A rank pattern
// alone does not say so.
Status CheckBlocks(const std::string& folder, const ModelSpec& adapted, const Weights& found) {
  std::string problems;
  for (const model::PlacedParameter& placed : model::ParametersOf(
           adapted, adapted.VocabularyOver(1), {.first_layer = 0, .layers = adapted.layers})) {
    const model::Parameter& b = placed.parameter;
    if (!b.adapter || b.published_parts == 1 || b.published_rows == 0) continue;
    LH_ASSIGN_OR_RETURN(const Tensor* tensor, TensorOf(found, adapted, placed));
    const int64_t columns = tensor->shape[1], own = b.shape.columns;
    if (columns == own) continue;
    LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadTensor(folder, *tensor));
    const size_t row_bytes = bytes.size() / static_cast<size_t>(tensor->shape[0]);
    const size_t block = row_bytes / b.published_parts;
    bool sound = true;
    for (size_t row = 0; row < b.shape.rows; ++row) {
      const auto of_row =
          std::span(bytes).subspan((b.published_first_row + row) * row_bytes, row_bytes);
      for (size_t i = 0; i < row_bytes; ++i) {
        sound = sound && (i / block == b.published_part || of_row[i] == std::byte{0});
      }
    }
    if (sound) continue;
    AddLine(fmt::format("{}/{}: '{}' has numbers outside the block of {}; expected the "
                        "block-diagonal matrix that `longhaul export` writes; begin with adapters "
                        "that were made without rank_pattern",
                        folder, kTensorFile, tensor->name, placed.Name()),
            &problems);
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems);
}

// Checks that every adapter of the model has its tensor, and every tensor its adapter.
Status CheckTensors(const std::string& path, const ModelSpec& adapted, const Weights& found) {
  std::string problems;
  std::set<std::string> used;
  for (const model::PlacedParameter& parameter : model::ParametersOf(
           adapted, adapted.VocabularyOver(1), {.first_layer = 0, .layers = adapted.layers})) {
    if (!parameter.parameter.adapter) continue;
    const StatusOr<const Tensor*> tensor = TensorOf(found, adapted, parameter);
    if (tensor.ok()) {
      used.insert((*tensor)->name);
    } else {
      AddLine(std::string(Message(Annotate(tensor.status(), path))), &problems);
    }
  }
  for (const Tensor& tensor : found.tensors) {
    if (used.contains(tensor.name)) continue;
    AddLine(fmt::format("{}: '{}' belongs to no adapter that {} names; remove it, or name its "
                        "module in target_modules",
                        path, tensor.name, kConfigFile),
            &problems);
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems);
}

}  // namespace

std::vector<StackedModule> StackedModulesOf(const ModelSpec& model) {
  const LoraSpec& lora = *model.lora;
  std::vector<StackedModule> modules;
  for (const model::Parameter& a : model::ParametersOf(model, /*vocabulary_rows=*/1,
                                                       /*embedding=*/false, /*head=*/false)) {
    if (!a.adapter || a.published_parts == 1 || a.published_part > 0 || a.published_rows > 0) {
      continue;
    }
    std::string_view name = a.published;
    name.remove_suffix(std::string_view(".lora_A.weight").size());
    const uint32_t parts = a.published_parts;
    // The scale stays the same.
    modules.push_back({.name = std::string(name.substr(name.rfind('.') + 1)),
                       .rank = parts * lora.rank,
                       .alpha = lora.alpha * (lora.rslora ? std::sqrt(parts) : parts)});
  }
  return modules;
}

StatusOr<LoraSpec> ParseAdapterConfig(std::string_view text, std::string_view file_name,
                                      const ModelSpec& model) {
  const Json json = ParseJson<Json>(text);
  if (!json.is_object()) {
    return InvalidArgument("{}: expected a JSON object, such as PEFT writes", file_name);
  }
  ConfigKeys keys(json, file_name);
  if (const Json* kind = keys.Find("peft_type"); kind == nullptr || *kind != "LORA") {
    return InvalidArgument(
        "{}: peft_type: expected \"LORA\", got {}; longhaul trains no other "
        "adapters",
        file_name, kind == nullptr ? "none" : WholeText(*kind));
  }
  ModelSpec adapted = model;
  LoraSpec& lora = adapted.lora.emplace();
  lora.rank = keys.Whole("r", kMostAdapterRank, std::nullopt);
  lora.alpha = keys.RealOf("lora_alpha", keys.Find("lora_alpha"), std::nullopt);
  if (lora.alpha > kMostAlpha) {
    keys.Fail("lora_alpha", fmt::format("expected at most {}, got {}", kMostAlpha, lora.alpha));
  }
  lora.rslora = keys.Flag("use_rslora", false);
  lora.dropout = DropoutFrom(keys.Find("lora_dropout"), keys);
  lora.targets = TargetsFrom(keys.Find("target_modules"), keys);
  if (lora.targets == std::vector<std::string>{"all-linear"}) {
    lora.targets = model::TargetsOf(model);
  }
  for (const std::string& target : lora.targets) {
    if (model::IsModule(model, target)) continue;
    keys.Fail("target_modules",
              fmt::format("no block of the model has a module '{}'; expected some of {}", target,
                          fmt::join(model::TargetsOf(model), ", ")));
  }
  RefuseUnsupported(keys);
  CheckPatterns(adapted, keys);
  for (const char* const key : kOfTrainingAlone) keys.Find(key);
  keys.RefuseOthers();
  LH_RETURN_IF_ERROR(keys.ToStatus());
  return lora;
}

StatusOr<Adapters> ReadAdapters(const std::string& folder, const ModelSpec& model) {
  const std::string config_path = fmt::format("{}/{}", folder, kConfigFile);
  const std::string path = fmt::format("{}/{}", folder, kTensorFile);
  LH_ASSIGN_OR_RETURN(const std::string json, ReadFile(config_path, kMostAdapterConfigBytes));
  LH_ASSIGN_OR_RETURN(LoraSpec lora, ParseAdapterConfig(json, config_path, model));
  if (!std::filesystem::exists(path)) {
    return InvalidArgument(
        "{}: expected {} beside {}; adapters in another format (adapter_model.bin) have to be "
        "saved again by PEFT, with safe_serialization=True",
        folder, kTensorFile, kConfigFile);
  }
  ModelSpec adapted = model;
  adapted.lora = lora;
  Weights found;
  LH_RETURN_IF_ERROR(ListTensors(folder, kTensorFile, &found));
  LH_RETURN_IF_ERROR(CheckTensors(path, adapted, found));
  LH_RETURN_IF_ERROR(CheckBlocks(folder, adapted, found));
  return Adapters{.lora = std::move(lora), .tensors = std::move(found.tensors)};
}

}  // namespace longhaul::published
