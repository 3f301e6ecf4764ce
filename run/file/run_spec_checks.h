// Checks and completions that involve several keys of a run file: values that follow from other
// keys, and impossible combinations. There is one function for each subject; CheckRunSpec calls all
// of them but CheckTexts.
//
// Problems go to `reader`, at the line of the key that a user would change; the functions return no
// errors. A value that is invalid by itself, or missing, is not compared with others.
#pragma once

#include <cstdint>
#include <string>

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

inline constexpr uint32_t kMostRanks = 64;  // of a group; the maximum of transport/collective

// Fills in the model's keys that neither the file nor an override has: from the preset (`preset` is
// its name; "": none), from the folder that model.from names, or from other keys of the family.
// Call it after the file and all overrides are read, and before Reader::RequireAll. An empty
// `find_model`: the folder is not read.
void CompleteModel(const std::string& preset, const FindModel& find_model, Reader& reader,
                   RunSpec* spec);
// Fills in what `train.lora` leaves out: from the folder that train.lora.from names, or from other
// keys; also the modules of "all-linear". The model must be complete. An empty `find_adapters`: the
// folder is not read.
void CompleteLora(const FindAdapters& find_adapters, Reader& reader, RunSpec* spec);
// Sets data.mask to document if the file has train.dpo and omits data.mask.
void CompleteDpo(const Reader& reader, RunSpec* spec);
// Returns validation.at_start for a file that omits it: true if the run validates and begins with
// published weights.
bool ValidatesAtStartByDefault(const RunSpec& spec);

// Checks all combinations of a complete spec.
void CheckRunSpec(const RunSpec& spec, Reader& reader);
void CheckModel(const RunSpec& spec, Reader& reader);
void CheckLora(const RunSpec& spec, Reader& reader);
void CheckDpo(const RunSpec& spec, Reader& reader);
void CheckGroup(const RunSpec& spec, Reader& reader);
void CheckReplicas(const RunSpec& spec, Reader& reader);
void CheckReplay(const RunSpec& spec, Reader& reader);
void CheckSamples(const RunSpec& spec, Reader& reader);
void CheckVerify(const RunSpec& spec, Reader& reader);
void CheckAudit(const RunSpec& spec, Reader& reader);
// Checks that the texts or data sets that the run names exist, and that the texts are large enough
// (CheckDataSize). `find_texts` must not be empty.
void CheckTexts(const RunSpec& spec, const FindTexts& find_texts, Reader& reader);

}  // namespace longhaul::config
