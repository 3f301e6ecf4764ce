// A Stage that sleeps for measured times instead of computing: for the run file's `replay`.
//
// Outputs are one tensor of noise, the same for every microbatch. A replay has no parameters:
// snapshots are empty, the gradient norm is 0, and Loss and Evaluate return 0, which the executor
// does not report. Calls out of the schedule's order are errors, as with any Stage.
#pragma once

#include <memory>

#include "worker/stage/stage.h"

namespace longhaul::worker {

// `options.replay` must have a value.
std::unique_ptr<Stage> MakeReplayStage(const StageOptions& options);

}  // namespace longhaul::worker
