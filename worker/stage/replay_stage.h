// A stage of a replay (the run file's `replay`): it sleeps where others compute.
//
// Outputs are one tensor of noise, the same for every microbatch. It has no parameters: snapshots
// are empty, the gradient norm is 0, and there is no loss (Loss and Evaluate give 0; the executor
// does not report it). Calls in an order that the schedule does not allow are errors, as of any
// stage.
#ifndef LONGHAUL_WORKER_STAGE_REPLAY_STAGE_H_
#define LONGHAUL_WORKER_STAGE_REPLAY_STAGE_H_

#include <memory>

#include "worker/stage/stage.h"

namespace longhaul::worker {

// `options.replay` has a value.
std::unique_ptr<Stage> MakeReplayStage(const StageOptions& options);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_REPLAY_STAGE_H_
