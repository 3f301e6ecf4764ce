// Finds the data sets that a run file names, and checks that their files exist.
#pragma once

#include <string>

#include "base/status.h"
#include "run/data/data_set.h"
#include "run/file/run_spec.h"
#include "run/published/weights.h"

namespace longhaul::cli {

// Reads the sets' manifests, and checks the sizes of their files but not the contents. A set is a
// folder. The spec has its path, absolute or relative to `folder`, or its address (set_folder.h).
// kInvalidArgument has a line for each problem of the sets. If the sets have none, the error says
// how they do not fit the rest of the spec.
StatusOr<data::Mixture> FindSets(const RunSpec& spec, const std::string& folder);

// Checks that the sets' tokens are those of the model in `model_folder`. Files tokenizer.json with
// the same JSON count as equal. kInvalidArgument names each set with another tokenizer. A set or a
// model without a tokenizer is not checked.
Status CheckTokenizers(const data::Mixture& mixture, const published::Weights& weights,
                       const std::string& model_folder);

}  // namespace longhaul::cli
