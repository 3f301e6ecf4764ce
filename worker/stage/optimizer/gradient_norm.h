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

// Adds the squares of all gradients to `sum`, from the last parameter to the first. The squares of
// one parameter are summed in double, in an order that depends only on its size. So the result
// repeats to the bit. Leaves out parameters that another stage or rank counts.
SquaredNorm AddSquaredGradients(const std::vector<Parameter>& parameters, double sum);

// Sums over the ranks of `group` the gradients of which each rank has only a part
// (Parameter::summed). Call it once a step, before anything else reads the gradients.
void SumPartsOfGradients(const std::vector<Parameter>& parameters, const RankGroup& group);

}  // namespace longhaul::worker
