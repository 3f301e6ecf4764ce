// Makes a stage's TiedMatrix over the parameter of its model.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time.
#ifndef LONGHAUL_WORKER_STAGE_TIED_PARAMETER_H_
#define LONGHAUL_WORKER_STAGE_TIED_PARAMETER_H_

#include <memory>
#include <vector>

#include "worker/stage/layers.h"
#include "worker/stage/stage.h"
#include "worker/stage/tied_matrix.h"

namespace longhaul::worker {

// Null if no other stage holds one of `parameters`, which outlive the result.
std::unique_ptr<TiedMatrix> TiedMatrixOf(const StageOptions& options,
                                         const std::vector<Parameter>& parameters);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_TIED_PARAMETER_H_
