// The sum of squared gradients, which gradient clipping needs.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <vector>

#include "worker/stage/group/rank_group.h"
#include "worker/stage/model/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Adds the squares of all gradients to `sum`, from the last parameter to the first. Each parameter
// is summed in double, in an order that depends on its size alone, so the result repeats to the
// bit. Leaves out parameters that another stage or rank counts.
SquaredNorm AddSquaredGradients(const std::vector<Parameter>& parameters, double sum);

// In a group: all-reduces the gradients of which each rank has only a partial sum. Call it before
// anything else reads the gradients of a step.
void SumPartsOfGradients(const std::vector<Parameter>& parameters, const RankGroup& group);

}  // namespace longhaul::worker
