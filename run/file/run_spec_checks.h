// What no single key of a run file shows: values that follow from other keys, and combinations that
// cannot be. One function a subject; CheckRunSpec calls all checks.
//
// Problems go to `reader`, at the place of the key that a user would change. A value that is wrong
// by itself, or missing, is held against no other.
#pragma once

#include <cstdint>
#include <string>

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

inline constexpr uint32_t kMostRanks = 64;  // that transport/collective serves

// Fills in what neither the file nor an override says of the model: from the preset, from the
// folder that model.from names, or from other keys of the family. Call it after all sources, before
// Reader::RequireAll. Without `find_model` nobody looks at the folder.
void CompleteModel(const std::string& preset, const FindModel& find_model, Reader& reader,
                   RunSpec* spec);
// Fills in what the file leaves open of alpha and targets, and which modules "all-linear" are.
// `model` is complete.
void CompleteLora(Reader& reader, ModelSpec* model);
// Value of validation.at_start where the file does not say.
bool ValidatesAtStartByDefault(const RunSpec& spec);

// Checks all combinations of a complete spec.
void CheckRunSpec(const RunSpec& spec, Reader& reader);
void CheckModel(const RunSpec& spec, Reader& reader);
void CheckLora(const RunSpec& spec, Reader& reader);
void CheckGroup(const RunSpec& spec, Reader& reader);
void CheckReplicas(const RunSpec& spec, Reader& reader);
void CheckReplay(const RunSpec& spec, Reader& reader);
// Checks the file's globs against the texts on disk.
void CheckTexts(const RunSpec& spec, const FindTexts& find_texts, Reader& reader);

}  // namespace longhaul::config
