// The sum of squares that clipping needs.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_GRADIENT_NORM_H_
#define LONGHAUL_WORKER_STAGE_GRADIENT_NORM_H_

#include <vector>

#include "worker/stage/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Adds the sums of squares of the gradients to `sum`, from the last parameter to the first, each
// summed in double in an order that depends on its size alone. One that is `repeated` counts where
// the embedding is.
SquaredNorm AddSquaredGradients(const std::vector<Parameter>& parameters, double sum);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GRADIENT_NORM_H_
