// A Stage that computes with LibTorch: all of its layers, or one rank's shares of them.
//
// Internal to worker/stage.
#pragma once

#include <memory>

#include "base/status.h"
#include "worker/stage/group/rank_group.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Refuses options that no LibTorch stage can serve.
Status CheckStageOptions(const StageOptions& options);

// `group`: the ranks that share the layers; it outlives the stage. Null: one rank. All ranks make
// the same calls in the same order. A rank's snapshots, `parameter_count` and Load concern its
// shares.
StatusOr<std::unique_ptr<Stage>> MakeNetworkStage(const StageOptions& options,
                                                  const RankGroup* group);

}  // namespace longhaul::worker
