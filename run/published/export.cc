#include "run/published/export.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/pending_file.h"
#include "base/words.h"
#include "run/published/adapters.h"
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
    const bool begins_tensor = parameter.parameter.published_first_row == 0;
    if (begins_tensor && parts.back().bytes > 0 &&
        parts.back().bytes + bytes > what.most_file_bytes) {
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
    if (parameter.parameter.published_first_row > 0) continue;  // rows of the tensor before
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

// The adapters that are one published tensor, by the order of their rows. Mostly it is one.
using StackedAdapters = std::vector<model::PlacedParameter>;

// All adapters, in the order of their tensors.
std::vector<StackedAdapters> TensorsOfAdapters(const ModelSpec& model) {
  std::vector<StackedAdapters> tensors;
  std::map<std::string, size_t> places;
  for (model::PlacedParameter& parameter : model::ParametersOf(
           model, model.VocabularyOver(1), {.first_layer = 0, .layers = model.layers})) {
    if (!parameter.parameter.adapter) continue;
    const auto [place, is_new] = places.try_emplace(parameter.PublishedName(), tensors.size());
    if (is_new) tensors.emplace_back();
    tensors[place->second].push_back(std::move(parameter));
  }
  return tensors;
}

bool IsB(const model::PlacedParameter& adapter) {
  return adapter.parameter.name.ends_with(".lora_B.weight");
}

// A block of rows of a block-diagonal matrix: `values`, with zeros before and behind each row.
std::vector<float> Widened(std::span<const float> values, size_t columns, size_t part,
                           size_t parts) {
  std::vector<float> wide(values.size() * parts);
  for (size_t row = 0; row < values.size() / columns; ++row) {
    std::ranges::copy(values.subspan(row * columns, columns),
                      wide.begin() + static_cast<ptrdiff_t>((row * parts + part) * columns));
  }
  return wide;
}

// A number as PEFT writes it: whole ones without a point.
nlohmann::ordered_json Plain(double value) {
  if (value == std::floor(value)) return static_cast<uint64_t>(value);
  return value;
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
                                   {"lora_alpha", Plain(lora.alpha)},
                                   {"lora_dropout", lora.dropout},
                                   {"target_modules", lora.targets},
                                   {"fan_in_fan_out", transposed},
                                   {"bias", "none"},
                                   {"use_rslora", lora.rslora},
                                   {"use_dora", false},
                                   {"modules_to_save", nullptr}};
  for (const StackedModule& module : StackedModulesOf(what.model)) {
    config["rank_pattern"][module.name] = module.rank;
    config["alpha_pattern"][module.name] = Plain(module.alpha);
  }
  return config.dump(2) + "\n";
}

}  // namespace

Status WriteAdapters(const std::string& folder, const AdapterExport& what, const FindValues& find) {
  LH_CHECK(what.model.lora.has_value(), "a model without adapters");
  LH_RETURN_IF_ERROR(WriteFileAtomic(folder + "/adapter_config.json", AdapterConfig(what)));
  LH_RETURN_IF_ERROR(WriteFiles(folder, what.files));
  const std::vector<StackedAdapters> tensors = TensorsOfAdapters(what.model);
  std::vector<TensorEntry> entries;
  for (const StackedAdapters& parts : tensors) {
    int64_t rows = 0, columns = parts.front().parameter.shape.columns;
    for (const model::PlacedParameter& part : parts) rows += part.parameter.shape.rows;
    if (IsB(parts.front())) columns *= static_cast<int64_t>(parts.size());
    entries.push_back({.name = parts.front().PublishedName(),
                       .type = std::string(TypeName(what.type)),
                       .shape = {rows, columns}});
  }
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<PendingFile> file,
                      PendingFile::Create(folder + "/adapter_model.safetensors"));
  LH_RETURN_IF_ERROR(file->Append(SafetensorsHeader(entries, {{"format", "pt"}})));
  for (const StackedAdapters& parts : tensors) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const model::Parameter& parameter = parts[i].parameter;
      LH_ASSIGN_OR_RETURN(std::span<const float> values, find(parts[i]));
      if (values.size() != parameter.shape.elements()) {
        return DataLoss("expected {} values of {}, got {}", parameter.shape.elements(),
                        parts[i].Name(), values.size());
      }
      std::vector<float> wide;
      if (IsB(parts[i]) && parts.size() > 1) {
        wide = Widened(values, parameter.shape.columns, i, parts.size());
        values = wide;
      }
      LH_RETURN_IF_ERROR(file->Append(Encode(values, parameter, what.type)));
    }
  }
  return file->Publish();
}

Status WriteFolder(const std::string& folder, const Export& what, const FindValues& find) {
  LH_ASSIGN_OR_RETURN(const std::string config,
                      WriteConfig(what.model, what.type, what.original_config));
  const bool is_own = what.ranks.have_own_channels();
  LH_RETURN_IF_ERROR(WriteFileAtomic(
      fmt::format("{}/{}", folder, is_own ? kOwnFile : "config.json"),
      is_own ? WriteOwnFile({.ranks = what.ranks, .config_json = config}) : config));
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
