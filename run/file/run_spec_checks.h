// What no single key of a run file shows: combinations that cannot be.
#ifndef LONGHAUL_RUN_FILE_RUN_SPEC_CHECKS_H_
#define LONGHAUL_RUN_FILE_RUN_SPEC_CHECKS_H_

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

// Problems go to `reader`, at the place of the key that a user would change. A value that is wrong
// by itself, or missing, is held against no other.
void CheckRunSpec(const RunSpec& spec, Reader& reader);
// Holds what the file says about its texts against the texts that are there.
void CheckTexts(const RunSpec& spec, const FindTexts& find_texts, Reader& reader);

}  // namespace longhaul::config

#endif  // LONGHAUL_RUN_FILE_RUN_SPEC_CHECKS_H_
