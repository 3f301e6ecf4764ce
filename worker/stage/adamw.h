// AdamW over a stage's parameters, and the sum of squares that clipping needs.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_ADAMW_H_
#define LONGHAUL_WORKER_STAGE_ADAMW_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "run/file/run_spec.h"
#include "worker/stage/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class AdamW {
 public:
  struct Moments {
    at::Tensor exp_avg, exp_avg_sq;
  };

  AdamW(const OptimizerSpec& spec, const std::vector<Parameter>& parameters);

  // One step with the accumulated gradients, each multiplied by `gradient_scale` first;
  // they stay. `step` counts from 1. Every parameter must have a gradient.
  void Step(uint64_t step, double learning_rate, double gradient_scale);

  // One for each parameter, in the order of the constructor's.
  const std::vector<Moments>& moments() const { return moments_; }

 private:
  struct Group {
    double weight_decay = 0;
    std::vector<size_t> members;
  };
  const OptimizerSpec spec_;
  std::vector<at::Tensor> parameters_;
  std::vector<Moments> moments_;
  Group decaying_, others_;
};

// Adds the sums of squares of the gradients to `sum`, from the last parameter to the first, each
// summed in double in an order that depends on its size alone.
SquaredNorm AddSquaredGradients(const std::vector<Parameter>& parameters, double sum);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_ADAMW_H_
