// A stage that computes with LibTorch: all of its layers, or one rank's shares of them.
//
// Internal to worker/stage.
#ifndef LONGHAUL_WORKER_STAGE_NETWORK_STAGE_H_
#define LONGHAUL_WORKER_STAGE_NETWORK_STAGE_H_

#include <memory>

#include "base/status.h"
#include "worker/stage/group/rank_group.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// What Stage::Create refuses.
Status CheckStageOptions(const StageOptions& options);

// `group`: null, or what the rank on this thread shares the layers with; it outlives the stage. All
// calls of a rank's stage are made by all ranks, in the same order. Its snapshots have its shares
// of parameters and moments, its `parameter_count` is that of its shares, and Load is given them.
StatusOr<std::unique_ptr<Stage>> MakeNetworkStage(const StageOptions& options,
                                                  const RankGroup* group);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_NETWORK_STAGE_H_
