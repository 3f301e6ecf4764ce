// A run file's `train.lora`: its keys, what they are when left out, what cannot be, and its text.
#ifndef LONGHAUL_RUN_FILE_LORA_FIELDS_H_
#define LONGHAUL_RUN_FILE_LORA_FIELDS_H_

#include <optional>
#include <string>

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

Field Lora(std::optional<LoraSpec>* lora);

// After CompleteModel: what nobody said of alpha and targets, and which modules "all-linear" are.
void CompleteLora(Reader& reader, ModelSpec* model);

// Combinations that cannot be; of a model that is complete.
void CheckLora(const RunSpec& spec, Reader& reader);

// Behind the other keys of `train`; nothing where all parameters are trained.
std::string LoraYaml(const std::optional<LoraSpec>& lora);

}  // namespace longhaul::config

#endif  // LONGHAUL_RUN_FILE_LORA_FIELDS_H_
