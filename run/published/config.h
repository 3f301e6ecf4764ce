// Parses config.json of a published model, and writes one for an export. Knows the families that
// transformers calls gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen2_moe and qwen3_moe.
//
// Pure, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/words.h"
#include "run/model/model_spec.h"

namespace longhaul::published {

struct Config {
  // Complete: `vocabulary` is the embedding's rows, `context` the longest context.
  ModelSpec model;
  // Sliding window: the maximum number of tokens, itself included, that a token attends to;
  // nullopt: all. A run whose context is not longer never reaches the limit.
  std::optional<uint32_t> window;
};

// `json`: the file's text; `file_name`: its name in messages. kInvalidArgument names all problems,
// a line each. A key that is unknown, or that longhaul computes differently, is refused by name.
StatusOr<Config> ParseConfig(std::string_view json, std::string_view file_name);

// Number type of an export's tensors.
enum class ExportType : uint8_t { kFp32, kBf16, kFp16 };
constexpr std::string_view ToString(ExportType type) {
  return WordOf(type, {"fp32", "bf16", "fp16"});
}

// Writes a config.json from which transformers makes `model` (with its vocabulary). `original`: the
// config.json that the model came from; empty: none. Its other keys are kept if it describes the
// same model; vocabulary, context, tying and the auxiliary loss of experts may differ.
// kFailedPrecondition: transformers has no such model.
StatusOr<std::string> WriteConfig(const ModelSpec& model, ExportType type,
                                  std::string_view original);

}  // namespace longhaul::published
