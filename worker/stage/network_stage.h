// A Stage that computes with LibTorch, alone or as one rank of a group.
//
// Internal to worker/stage.
#pragma once

#include <memory>

#include "base/status.h"
#include "worker/stage/group/rank_group.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Checks options before a stage is made. kInvalidArgument: no stage can have these options.
Status CheckStageOptions(const StageOptions& options);

// Makes a stage. `group`: the group of this rank, which must outlive the stage; null: a stage of
// one rank. In a group all ranks must make the same calls in the same order. Then Snapshot,
// Restore, Load and parameter_count concern only this rank's share of each parameter. Errors: those
// of CheckStageOptions and of a Stage (stage.h).
StatusOr<std::unique_ptr<Stage>> MakeNetworkStage(const StageOptions& options,
                                                  const RankGroup* group);

}  // namespace longhaul::worker
