// Finds the data sets that a run file names, and checks that their files exist.
#pragma once

#include <string>

#include "base/status.h"
#include "run/data/data_set.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {

// Reads the manifests and checks the files' sizes, but not their contents. Relative folders are
// relative to `folder`; http(s) addresses of folders work as well. kInvalidArgument has a line for
// each problem, also if the sets do not fit the rest of the spec.
StatusOr<data::Mixture> FindSets(const RunSpec& spec, const std::string& folder);

}  // namespace longhaul::cli
