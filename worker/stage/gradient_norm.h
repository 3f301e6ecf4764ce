// The sum of squares that clipping needs.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_GRADIENT_NORM_H_
#define LONGHAUL_WORKER_STAGE_GRADIENT_NORM_H_

#include <vector>

#include "worker/stage/group/rank_group.h"
#include "worker/stage/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Adds the sums of squares of the gradients to `sum`, from the last parameter to the first, each
// summed in double in an order that depends on its size alone. One that is
// counted elsewhere is left out.
SquaredNorm AddSquaredGradients(const std::vector<Parameter>& parameters, double sum);

// In a group, before anything else reads the gradients of a step: those that are parts of a sum
// over ranks become the sum.
void SumPartsOfGradients(const std::vector<Parameter>& parameters, const RankGroup& group);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GRADIENT_NORM_H_
