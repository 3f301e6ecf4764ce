// A stage whose matrices are shared by the ranks of a tensor-parallel group (Megatron's splits):
// one Stage to its user, a thread and a device for each rank behind it.
//
//   options.ranks = {{.cuda_index = 0}, {.cuda_index = 1}};
//   LH_ASSIGN_OR_RETURN(auto stage, MakeGroupStage(options, make_communicators));
//
// Every rank holds its share of the parameters (run/model/share.h) and runs every microbatch. The
// group's kind decides which part of the hidden state a rank holds and which tensors ranks exchange
// (rank_group.h). The user of the stage sees whole tensors:
// - Boundary tensors are rank 0's, in its device's memory.
// - Snapshots have whole tensors under global names, so a checkpoint fits any number of ranks.
// - Replicas exchange whole parameters, and the gradient norm counts each number once.
//
// Losses for any number of ranks agree to rounding, and repeat to the bit if the collectives do.
// With GroupSpec::shared_channels each number of ranks is a model of its own.
//
// Threads: as for a Stage; rank threads are its own. Errors: as for a Stage, and kInvalidArgument
// for a model that cannot be split over this number of ranks. A rank that fails ends the group: the
// call returns "rank 1: ..." once all ranks have stopped, within 2 s, and all later calls fail.
// Make a new stage then.
#pragma once

#include <memory>

#include "base/status.h"
#include "worker/stage/group/communicators.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// `options.ranks` has at least two entries.
StatusOr<std::unique_ptr<Stage>> MakeGroupStage(const StageOptions& options,
                                                const MakeCommunicators& make_communicators);

}  // namespace longhaul::worker
