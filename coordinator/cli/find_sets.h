// The data sets that a run file names: their manifests, and whether their files are there.
#ifndef LONGHAUL_COORDINATOR_CLI_FIND_SETS_H_
#define LONGHAUL_COORDINATOR_CLI_FIND_SETS_H_

#include <string>

#include "base/status.h"
#include "run/data/data_set.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {

// Folders are relative to `folder`; http(s) addresses of folders serve as well. Reads the manifests
// and looks at the files' sizes, not at what they have. kInvalidArgument, a line for each problem;
// also where the sets do not fit the rest of the spec.
StatusOr<data::Mixture> FindSets(const RunSpec& spec, const std::string& folder);

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_FIND_SETS_H_
