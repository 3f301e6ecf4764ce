// AdamW with decoupled weight decay, for all parameters of a stage or for some of them.
//
// The optimizer state is fp32 or bf16. A step converts bf16 state to fp32, one piece of a parameter
// at a time, and updates the fp32 numbers. Then it rounds them to bf16, up or down at random
// (stochastic_rounding.h). Rounding to the nearest would lose each change that is smaller than
// 1/512 of the value.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "run/file/run_spec.h"
#include "worker/stage/model/layers.h"
#include "worker/stage/optimizer/optimizer.h"

namespace longhaul::worker {

class AdamW final : public Optimizer {
 public:
  AdamW(const TrainSpec& train, const std::vector<Parameter>& parameters);

  void Step(uint64_t step, double learning_rate, double gradient_scale) override;
  void MoveTo(const std::vector<Parameter>& parameters) override;
  // The optimizer state, in the order of the constructor's parameters: for each one "exp_avg", then
  // "exp_avg_sq".
  const std::vector<Moment>& moments() const override { return moments_; }

 private:
  // The scalars of one step. Gradients are divided by `divisor`, unless it is undefined.
  struct Arguments {
    uint64_t step;
    double learning_rate;
    at::Tensor step_tensor, divisor;
  };
  // Parameters with the same weight decay, as indices.
  struct Group {
    double weight_decay = 0;
    std::vector<size_t> members;
  };
  void StepInFp32(const Group& group, const Arguments& arguments);
  void StepInPieces(const Group& group, const Arguments& arguments);
  void Update(const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& gradients,
              const std::vector<at::Tensor>& exp_avgs, const std::vector<at::Tensor>& exp_avg_sqs,
              const Group& group, const Arguments& arguments) const;

  const OptimizerSpec spec_;
  const uint64_t seed_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  std::vector<Moment> moments_;
  Group decaying_, others_;
};

}  // namespace longhaul::worker
