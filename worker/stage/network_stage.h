// A Stage that computes with LibTorch: all of its layers, or one rank's shares of them.
//
// Internal to worker/stage.
#pragma once

#include <memory>

#include "base/status.h"
#include "worker/stage/group/rank_group.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Refuses options that no stage of LibTorch can serve.
Status CheckStageOptions(const StageOptions& options);

// `group`: the ranks that share the layers, and it outlives the stage; null: one rank. All ranks
// make the same calls in the same order. A rank's snapshots, `parameter_count` and Load are about
// its shares.
StatusOr<std::unique_ptr<Stage>> MakeNetworkStage(const StageOptions& options,
                                                  const RankGroup* group);

}  // namespace longhaul::worker
