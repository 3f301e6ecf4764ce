// config.json of a published model: what it says of a model, and what we write for one that others
// are to load. Of the families that transformers calls gpt2, llama, mistral, qwen2, qwen3, mixtral,
// qwen2_moe and qwen3_moe.
//
// Pure, thread-safe.
#ifndef LONGHAUL_RUN_PUBLISHED_CONFIG_H_
#define LONGHAUL_RUN_PUBLISHED_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "run/model/model_spec.h"

namespace longhaul::published {

struct Config {
  // Complete: `vocabulary` are the embedding's rows, `context` is the longest one.
  ModelSpec model;
  // A token attends to so many before it and itself at most; nullopt: to all. A run whose context
  // is no longer never meets the limit.
  std::optional<uint32_t> window;
};

// `json`: the file's text, which messages call `file_name`. kInvalidArgument naming all that is
// wrong, a line each: a key that we compute otherwise, or do not know, is refused by its name.
StatusOr<Config> ParseConfig(std::string_view json, std::string_view file_name);

// Tensors of an export.
enum class ExportType : uint8_t { kFp32, kBf16, kFp16 };
std::string_view ToString(ExportType type);  // "fp32", "bf16", "fp16"

// A text from which transformers makes `model` (with its vocabulary). `original`: the config.json
// that the model came from; empty: none. Its other keys are kept where it says the same model, but
// for vocabulary, context, tying and the auxiliary loss of experts. kFailedPrecondition where
// transformers has no such model.
StatusOr<std::string> WriteConfig(const ModelSpec& model, ExportType type,
                                  std::string_view original);

}  // namespace longhaul::published

#endif  // LONGHAUL_RUN_PUBLISHED_CONFIG_H_
