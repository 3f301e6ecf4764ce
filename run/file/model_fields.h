// A run file's `model`: its keys, what a preset fills in, what cannot be, and its text.
#ifndef LONGHAUL_RUN_FILE_MODEL_FIELDS_H_
#define LONGHAUL_RUN_FILE_MODEL_FIELDS_H_

#include <string>

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

// `preset` gets the preset's name, or stays as it is.
Field Model(ModelSpec* spec, std::string* preset);

// After all sources, before Reader::RequireAll: what neither the file nor an override says comes
// from the preset or from other keys of the family. What they say stays, wherever it stands.
void CompleteModel(const std::string& preset, Reader& reader, ModelSpec* spec);

// Combinations that cannot be; of a model that is complete.
void CheckModel(const RunSpec& spec, Reader& reader);

// Without what belongs to another family, so that workers of versions that did not know it
// understand what they can train.
std::string ModelYaml(const ModelSpec& spec);

}  // namespace longhaul::config

#endif  // LONGHAUL_RUN_FILE_MODEL_FIELDS_H_
