// Reads LoRA adapters from a folder in PEFT's layout: adapter_config.json and
// adapter_model.safetensors. PEFT writes such folders, and so does longhaul (WriteAdapters in
// export.h).
//
// Pure, except ReadAdapters, which reads files. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "run/model/model_spec.h"
#include "run/published/weights.h"

namespace longhaul::published {

// A published module that stands for several adapted matrices, for example the qkv_proj of Phi-3.
// WriteAdapters (export.h) writes it with another rank and alpha than those of LoraSpec.
struct StackedModule {
  std::string name;  // the last part of its published name
  uint32_t rank = 0;
  double alpha = 0;
};
// Returns the stacked modules among the targets of model.lora, which must be set; in the model's
// order.
std::vector<StackedModule> StackedModulesOf(const ModelSpec& model);

// Returns what an adapter_config.json says of adapters of `model`, whose `lora` does not matter.
// `targets` are as in the file; "all-linear" is replaced by all modules. `file_name`: the name in
// messages. kInvalidArgument names all problems, one per line. Refuses settings with which PEFT
// computes something else than LoraSpec describes, settings that it does not know, and targets that
// the model does not have.
StatusOr<LoraSpec> ParseAdapterConfig(std::string_view json, std::string_view file_name,
                                      const ModelSpec& model);

struct Adapters {
  LoraSpec lora;
  std::vector<Tensor> tensors;  // by offset; without hashes
};
// Reads the adapters of `model`, which must be complete; its `lora` does not matter. Reads numbers
// only of stacked modules. kInvalidArgument names all problems, one per line: those of
// ParseAdapterConfig, or all tensors that are missing, that no adapter of the model uses, or whose
// shape or type is wrong. If a file cannot be read, returns the error of ReadFile.
StatusOr<Adapters> ReadAdapters(const std::string& folder, const ModelSpec& model);

}  // namespace longhaul::published
