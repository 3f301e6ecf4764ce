// Writes a model as a folder that transformers loads (config.json, tensors, tokenizer), or its LoRA
// adapters as a folder that PEFT loads. A model whose ranks have channels of their own becomes a
// folder that only longhaul reads (own_folder.h). Calls for the same folder must not run at the
// same time.
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
  ModelSpec model;                      // with its vocabulary, without `lora`
  ExportType type = ExportType::kFp32;  // config.json says it
  // Returns the type of a tensor. Empty: all tensors have `type`.
  std::function<ExportType(const model::PlacedParameter& parameter)> type_of = {};
  // config.json or longhaul.json of the imported model; empty: none.
  std::string original_config;
  // Where they have channels of their own: writes longhaul.json instead of config.json.
  RanksOfModel ranks = {};
  std::vector<SmallFile> files;  // the tokenizer's
  // Maximum bytes of the tensors in one file. If all tensors have more, they are split over several
  // files, with an index. A larger tensor gets a file of its own.
  uint64_t most_file_bytes = uint64_t{5} * 1000 * 1000 * 1000;
};

// Returns a parameter's values, row-major, as many as its shape has elements. The values must stay
// valid until the next call. Called on the thread of WriteFolder or WriteAdapters; must not be
// empty.
using FindValues =
    std::function<StatusOr<std::span<const float>>(const model::PlacedParameter& parameter)>;

// Writes the model into `folder`, which must exist and be empty. Calls `find` for one tensor after
// the other. Each file appears whole or not at all; after an error some files may be there. Errors:
// kFailedPrecondition if transformers has no such model; kDataLoss if `find` returns too few or too
// many values; errors of `find`; errors of file operations.
Status WriteFolder(const std::string& folder, const Export& what, const FindValues& find);

// LoRA adapters.
struct AdapterExport {
  ModelSpec model;  // with its `lora` and its vocabulary
  ExportType type = ExportType::kFp32;
  std::string base;              // where PEFT finds the adapted model: a folder or a name
  std::vector<SmallFile> files;  // the tokenizer's
};

// Like WriteFolder, but writes adapter_config.json, adapter_model.safetensors and the tokenizer's
// files. Where several adapted matrices are one published module, their adapters become one: the
// rows of all A, and a block-diagonal B. Its rank and alpha are in rank_pattern and alpha_pattern.
// Errors: as of WriteFolder, but any model is written.
Status WriteAdapters(const std::string& folder, const AdapterExport& what, const FindValues& find);

}  // namespace longhaul::published
