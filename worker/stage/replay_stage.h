// A Stage for a replay (`replay` in the run file). Instead of computing, it sleeps for the times in
// the run file. For a group these are the times of all ranks together, so the stage has none.
//
// All outputs are the same tensor of noise, in host memory. A replay trains no parameters:
// snapshots have only the step number. The gradient norm and all losses are 0; the executor does
// not report them. For data-parallel replicas, SharedParameters returns noise as gradients. Slices
// in a wrong order are errors, as with any Stage; the order of steps is not checked.
#pragma once

#include <memory>

#include "worker/stage/stage.h"

namespace longhaul::worker {

// Cannot fail. `options` must have passed CheckStageOptions (network_stage.h), and `options.replay`
// must have a value.
std::unique_ptr<Stage> MakeReplayStage(const StageOptions& options);

}  // namespace longhaul::worker
