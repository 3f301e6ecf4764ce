// Writes a model as a folder that transformers loads (config.json, tensors, tokenizer), or its LoRA
// adapters as a folder that PEFT loads.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "run/model/family.h"
#include "run/published/config.h"
#include "run/published/weights.h"

namespace longhaul::published {

struct Export {
  ModelSpec model;  // with its vocabulary
  ExportType type = ExportType::kFp32;
  std::string original_config;   // of the original model; empty: none
  std::vector<SmallFile> files;  // the tokenizer's
  // If the tensors have more bytes, the export is split over several files, with an index.
  uint64_t most_file_bytes = uint64_t{5} * 1000 * 1000 * 1000;
};

// Returns the values of a parameter, row-major; there must be parameter.shape.elements(). They must
// stay valid until the next call.
using FindValues =
    std::function<StatusOr<std::span<const float>>(const model::PlacedParameter& parameter)>;

// Writes into an existing empty folder, one tensor at a time. Each file appears whole or not at
// all; after an error some files may be there.
Status WriteFolder(const std::string& folder, const Export& what, const FindValues& find);

// LoRA adapters.
struct AdapterExport {
  ModelSpec model;  // with its `lora`
  ExportType type = ExportType::kFp32;
  std::string base;              // where PEFT finds the adapted model: a folder or a name
  std::vector<SmallFile> files;  // the tokenizer's
};

// Writes adapter_config.json, adapter_model.safetensors and the tokenizer's files. Otherwise like
// WriteFolder.
Status WriteAdapters(const std::string& folder, const AdapterExport& what, const FindValues& find);

}  // namespace longhaul::published
