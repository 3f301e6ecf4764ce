// What no single key of a run file shows: combinations that cannot be.
#ifndef LONGHAUL_RUN_FILE_RUN_SPEC_CHECKS_H_
#define LONGHAUL_RUN_FILE_RUN_SPEC_CHECKS_H_

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

// Problems go to `reader`, at the place of the key that a user would change. A value that is wrong
// by itself, or missing, is held against no other.
void CheckRunSpec(const RunSpec& spec, Reader& reader);
// What validation.at_start is where the file does not say.
bool ValidatesAtStartByDefault(const RunSpec& spec);
// Checks the file's globs against the texts on disk.
void CheckTexts(const RunSpec& spec, const FindTexts& find_texts, Reader& reader);

}  // namespace longhaul::config

#endif  // LONGHAUL_RUN_FILE_RUN_SPEC_CHECKS_H_
