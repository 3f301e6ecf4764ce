// A Stage for a replay (`replay` in the run file). Instead of computing, it sleeps for the times in
// the run file.
//
// All outputs are the same tensor of noise. A replay trains no parameters: snapshots are empty, the
// gradient norm is 0, and losses are 0; the executor does not report them. For replicas,
// SharedParameters returns noise. Calls in a wrong order are errors, as with any Stage.
#pragma once

#include <memory>

#include "worker/stage/stage.h"

namespace longhaul::worker {

// `options.replay` must have a value.
std::unique_ptr<Stage> MakeReplayStage(const StageOptions& options);

}  // namespace longhaul::worker
