// The interface of the optimizers, AdamW (adamw.h) and Muon (muon.h). An optimizer updates the
// parameters of a stage once a step.
//
// An update depends only on the run file's train section, the step, the parameter and its gradient.
// An update does not depend on how layers are divided into stages, nor on a resume. Updates repeat
// to the bit on a CPU, and on a GPU if gradients do.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "run/file/run_spec.h"
#include "worker/stage/model/layers.h"

namespace longhaul::worker {

// Suffixes of optimizer state in checkpoints, after the parameter's name.
inline constexpr std::string_view kExpAvg = ".exp_avg", kExpAvgSq = ".exp_avg_sq";  // AdamW
inline constexpr std::string_view kMomentum = ".momentum";                          // Muon

class Optimizer {
 public:
  // One tensor of optimizer state, with its parameter's shape.
  struct Moment {
    std::string name;  // "<parameter>.exp_avg"
    at::Tensor value;  // fp32 or bf16, as the run file says; fp32 represents both exactly
  };

  // Returns the parameters that an optimizer updates: all except the biases that balance experts.
  static std::vector<Parameter> SteppedOf(const std::vector<Parameter>& all);
  // Makes the optimizer that `train` names, for the parameters SteppedOf(parameters). The optimizer
  // keeps references to their values. `group`: the group of the rank that holds them; null: one
  // rank holds all. In a group all ranks must call Step together.
  static std::unique_ptr<Optimizer> Create(const TrainSpec& train,
                                           const std::vector<Parameter>& parameters,
                                           const RankGroup* group = nullptr);
  virtual ~Optimizer() = default;

  // Updates the parameters with their accumulated gradients, multiplied by `gradient_scale`. Does
  // not clear the gradients. `step` counts from 1. Each parameter must have a gradient.
  virtual void Step(uint64_t step, double learning_rate, double gradient_scale) = 0;

  // From now on updates `parameters`, with the existing state. Their names, shapes and order must
  // be those of the parameters for which the optimizer was made.
  virtual void MoveTo(const std::vector<Parameter>& parameters) = 0;

  // Returns the whole optimizer state, in an order that depends only on the parameters. The tensors
  // are the optimizer's own: to restore the optimizer, write into them.
  virtual const std::vector<Moment>& moments() const = 0;
};

}  // namespace longhaul::worker
