// Parses the config.json of a published model, and writes a config.json for an export. Which models
// of transformers longhaul computes is in config_types.cc.
//
// Pure, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/words.h"
#include "run/model/model_spec.h"
#include "run/published/own_folder.h"

namespace longhaul::published {

struct Config {
  // Complete: `vocabulary` is the embedding's rows, `context` the longest context.
  ModelSpec model;
  RanksOfModel ranks;
};

// `json`: the text of a config.json, or of longhaul.json (own_folder.h); `file_name`: the name in
// messages. kInvalidArgument names all problems, one per line. Refuses keys that it does not know,
// and values that need a computation which longhaul does not have.
StatusOr<Config> ParseConfig(std::string_view json, std::string_view file_name);

// Number type of an export's tensors.
enum class ExportType : uint8_t { kFp32, kBf16, kFp16 };
constexpr std::string_view ToString(ExportType type) {
  return WordOf(type, {"fp32", "bf16", "fp16"});
}

// Returns the text of a config.json from which transformers builds `model`, whose vocabulary must
// be set. `original`: the config.json or longhaul.json that the model was imported from; empty:
// none. Keys that the model does not set are copied from `original` if it describes the same model;
// vocabulary, context, tying and balancing of experts may differ. kFailedPrecondition: transformers
// has no such model.
StatusOr<std::string> WriteConfig(const ModelSpec& model, ExportType type,
                                  std::string_view original);

}  // namespace longhaul::published
