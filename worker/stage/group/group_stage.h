// A stage that a tensor-parallel group computes: ranks share its matrices, split as in Megatron-LM.
// The user sees one Stage. Behind this Stage each rank has a thread and a device.
//
//   options.ranks = {{.cuda_index = 0}, {.cuda_index = 1}};
//   LH_ASSIGN_OR_RETURN(auto stage, MakeGroupStage(options, make_communicators));
//
// Each rank holds its share of the parameters (run/model/share.h) and takes part in each
// microbatch. The group's kind decides which part of the hidden state a rank holds, and which
// tensors ranks exchange (rank_group.h). The user of the stage sees whole tensors:
// - Boundary tensors are in the memory of rank 0's device.
// - Snapshots have whole tensors under global names, so a checkpoint fits any number of ranks.
// - Replicas exchange whole parameters, and the gradient norm counts each number once.
//
// Groups of different sizes give the same losses up to rounding. The exception is
// GroupSpec::shared_channels below 1: then each size is a different model. Losses repeat to the bit
// if the results of collectives do.
//
// Threads: as for a Stage; the ranks' threads belong to the group. Errors: as for a Stage, and
// kInvalidArgument for options that a group does not support or a model that cannot be split over
// this number of ranks. After kInvalidArgument and kFailedPrecondition the group can go on. Any
// other error of a rank ends the group: the call returns an error "rank 1: ..." within 2 s, when
// all ranks have stopped, and all later calls fail. Make a new stage then.
#pragma once

#include <memory>

#include "base/status.h"
#include "worker/stage/group/communicators.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// `options.ranks` must have at least two entries, as many as `options.group.tensor`.
// `make_communicators` is called once on each rank's thread, before MakeGroupStage returns.
StatusOr<std::unique_ptr<Stage>> MakeGroupStage(const StageOptions& options,
                                                const MakeCommunicators& make_communicators);

}  // namespace longhaul::worker
