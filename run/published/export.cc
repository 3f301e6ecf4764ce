#include "run/published/export.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/pending_file.h"
#include "base/words.h"
#include "run/published/safetensors.h"

namespace longhaul::published {
namespace {

std::string_view TypeName(ExportType type) {
  return WordOf(type, {"F32", "BF16", "F16"});
}

struct Part {
  std::vector<model::PlacedParameter> parameters;
  uint64_t bytes = 0;
};

uint64_t BytesIn(const model::PlacedParameter& parameter, ExportType type) {
  return parameter.parameter.shape.elements() * BytesOfType(TypeName(type));
}

using TypeOf = std::function<ExportType(const model::PlacedParameter& parameter)>;

TypeOf TypeOfAll(ExportType type) {
  return [type](const model::PlacedParameter& /*parameter*/) { return type; };
}

// In the model's order; at least a tensor in each.
std::vector<Part> PartsOf(const Export& what, const TypeOf& type_of) {
  const ModelSpec& model = what.model;
  std::vector<Part> parts(1);
  for (model::PlacedParameter& parameter : model::ParametersOf(
           model, *model.vocabulary,
           {.first_layer = 0, .layers = model.layers, .embedding = true, .head = true})) {
    LH_CHECK(parameter.parameter.is_published(), "{} is in no published model", parameter.Name());
    const uint64_t bytes = BytesIn(parameter, type_of(parameter));
    if (parts.back().bytes > 0 && parts.back().bytes + bytes > what.most_file_bytes) {
      parts.emplace_back();
    }
    parts.back().bytes += bytes;
    parts.back().parameters.push_back(std::move(parameter));
  }
  return parts;
}

Status WritePart(const std::string& path, const Part& part, const TypeOf& type_of,
                 const FindValues& find) {
  std::vector<TensorEntry> entries;
  for (const model::PlacedParameter& parameter : part.parameters) {
    entries.push_back({.name = parameter.PublishedName(),
                       .type = std::string(TypeName(type_of(parameter))),
                       .shape = PublishedShape(parameter.parameter)});
  }
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<PendingFile> file, PendingFile::Create(path));
  // transformers refuses a file that does not say for whom it is.
  LH_RETURN_IF_ERROR(file->Append(SafetensorsHeader(entries, {{"format", "pt"}})));
  for (const model::PlacedParameter& parameter : part.parameters) {
    LH_ASSIGN_OR_RETURN(const std::span<const float> values, find(parameter));
    if (values.size() != parameter.parameter.shape.elements()) {
      return DataLoss("expected {} values of {}, got {}", parameter.parameter.shape.elements(),
                      parameter.Name(), values.size());
    }
    LH_RETURN_IF_ERROR(file->Append(Encode(values, parameter.parameter, type_of(parameter))));
  }
  return file->Publish();
}

Status WriteFiles(const std::string& folder, const std::vector<SmallFile>& files) {
  for (const SmallFile& file : files) {
    LH_RETURN_IF_ERROR(CheckFileName("a file of the tokenizer", file.name));
    LH_RETURN_IF_ERROR(WriteFileAtomic(folder + "/" + file.name, file.contents));
  }
  return absl::OkStatus();
}

// As PEFT's LoraConfig.save_pretrained; keys that stand for nothing that we do are left out, and
// then have PEFT's usual values.
std::string AdapterConfig(const AdapterExport& what) {
  const LoraSpec& lora = *what.model.lora;
  const std::vector<model::Parameter> parameters =
      model::FamilyOf(what.model).parameters(what.model, /*vocabulary_rows=*/1);
  const bool transposed =
      std::any_of(parameters.begin(), parameters.end(),
                  [](const model::Parameter& parameter) { return parameter.published_transposed; });
  nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                   {"task_type", "CAUSAL_LM"},
                                   {"base_model_name_or_path", what.base},
                                   {"inference_mode", true},
                                   {"r", lora.rank},
                                   {"lora_alpha", lora.alpha},
                                   {"lora_dropout", 0.0},
                                   {"target_modules", lora.targets},
                                   {"fan_in_fan_out", transposed},
                                   {"bias", "none"},
                                   {"use_rslora", false},
                                   {"use_dora", false},
                                   {"modules_to_save", nullptr}};
  // PEFT has whole numbers.
  if (lora.alpha == std::floor(lora.alpha)) {
    config["lora_alpha"] = static_cast<uint64_t>(lora.alpha);
  }
  return config.dump(2) + "\n";
}

}  // namespace

Status WriteAdapters(const std::string& folder, const AdapterExport& what, const FindValues& find) {
  LH_CHECK(what.model.lora.has_value(), "a model without adapters");
  LH_RETURN_IF_ERROR(WriteFileAtomic(folder + "/adapter_config.json", AdapterConfig(what)));
  LH_RETURN_IF_ERROR(WriteFiles(folder, what.files));
  Part adapters;
  for (model::PlacedParameter& parameter : model::ParametersOf(
           what.model, *what.model.vocabulary, {.first_layer = 0, .layers = what.model.layers})) {
    if (parameter.parameter.adapter) adapters.parameters.push_back(std::move(parameter));
  }
  return WritePart(folder + "/adapter_model.safetensors", adapters, TypeOfAll(what.type), find);
}

Status WriteFolder(const std::string& folder, const Export& what, const FindValues& find) {
  LH_ASSIGN_OR_RETURN(const std::string config,
                      WriteConfig(what.model, what.type, what.original_config));
  LH_RETURN_IF_ERROR(WriteFileAtomic(folder + "/config.json", config));
  LH_RETURN_IF_ERROR(WriteFiles(folder, what.files));
  const TypeOf type_of = what.type_of ? what.type_of : TypeOfAll(what.type);
  const std::vector<Part> parts = PartsOf(what, type_of);
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  uint64_t total = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name =
        parts.size() == 1 ? "model.safetensors"
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    LH_RETURN_IF_ERROR(WritePart(fmt::format("{}/{}", folder, name), parts[i], type_of, find));
    total += parts[i].bytes;
    for (const auto& parameter : parts[i].parameters) map[parameter.PublishedName()] = name;
  }
  if (parts.size() == 1) return absl::OkStatus();
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                        {"weight_map", std::move(map)}};
  return WriteFileAtomic(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace longhaul::published
