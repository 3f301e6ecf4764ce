// Makes a stage's TiedMatrix over the parameter of its model.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time.
#pragma once

#include <memory>
#include <vector>

#include "worker/stage/model/layers.h"
#include "worker/stage/replicas/tied_matrix.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Returns null if no other stage holds a copy of one of `parameters`, the parameters of the stage's
// model. `parameters` must outlive the result.
std::unique_ptr<TiedMatrix> TiedMatrixOf(const StageOptions& options,
                                         const std::vector<Parameter>& parameters);

}  // namespace longhaul::worker
