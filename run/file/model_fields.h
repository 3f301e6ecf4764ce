// A run file's `model`: its keys, what a preset or a published model fills in, what cannot be, and
// its text.
#ifndef LONGHAUL_RUN_FILE_MODEL_FIELDS_H_
#define LONGHAUL_RUN_FILE_MODEL_FIELDS_H_

#include <string>
#include <string_view>

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

// `preset` gets the preset's name, or stays as it is.
Field Model(ModelSpec* spec, WeightsSpec* weights, std::string* preset);

// After all sources, before Reader::RequireAll: what neither the file nor an override says comes
// from the preset, from the folder that weights.from names, or from other keys of the family. What
// they say stays, wherever it stands. Without `find_model` nobody looks at the folder.
void CompleteModel(const std::string& preset, const FindModel& find_model, Reader& reader,
                   RunSpec* spec);

// Combinations that cannot be; of a model that is complete.
void CheckModel(const RunSpec& spec, Reader& reader);

// What is wrong with the name of a folder, or with a content address; "": nothing.
std::string CheckFolder(std::string_view path);
std::string CheckSha256(std::string_view text);

// Without what belongs to another family, so that workers of versions that did not know it
// understand what they can train.
std::string ModelYaml(const RunSpec& spec);

}  // namespace longhaul::config

#endif  // LONGHAUL_RUN_FILE_MODEL_FIELDS_H_
