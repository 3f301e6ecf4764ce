// A stage whose matrices are shared by the ranks of a tensor-parallel group (Megatron's splits):
// one Stage to its user, a thread and a device for each rank behind it.
//
//   options.ranks = {{.cuda_index = 0}, {.cuda_index = 1}};
//   LH_ASSIGN_OR_RETURN(auto stage, MakeGroupStage(options, make_communicators));
//
// Every rank holds its share of the parameters (run/model/share.h) and runs every microbatch. What
// it has of the hidden state, and what ranks exchange, depends on the kind of the group
// (rank_group.h). Whoever uses the stage sees whole things: the boundary tensors are those of rank
// 0, in its device's memory; snapshots have whole tensors under global names, so a checkpoint of
// any number of ranks fits any other; replicas of the stage exchange whole parameters; the gradient
// norm counts each number once.
//
// Losses for any number of ranks agree to rounding, and repeat to the bit where the collectives do.
// With channels of each rank's own (GroupSpec::shared_channels) every number of ranks is a model of
// its own.
//
// Threads: as a Stage; rank threads are its own. Errors: as a Stage, and kInvalidArgument for a
// model that so many ranks cannot share. A rank that fails ends the group: the call says "rank 1:
// ..." once all ranks have given up, within 2 s, and so do all later calls. Make a new stage then.
#ifndef LONGHAUL_WORKER_STAGE_GROUP_GROUP_STAGE_H_
#define LONGHAUL_WORKER_STAGE_GROUP_GROUP_STAGE_H_

#include <memory>

#include "base/status.h"
#include "worker/stage/group/communicators.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// `options.ranks` has at least two.
StatusOr<std::unique_ptr<Stage>> MakeGroupStage(const StageOptions& options,
                                                const MakeCommunicators& make_communicators);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_GROUP_STAGE_H_
