// The interface of optimizers, which update a stage's parameters once a step: AdamW (adamw.h) and
// Muon (muon.h).
//
// An update depends only on (the run file's train section, step, parameter), not on the split of
// layers or on a resume. On a CPU it repeats to the bit; on a GPU if the rest of the stage does.
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

  // The parameters that an optimizer steps: all but the biases that balance experts.
  static std::vector<Parameter> SteppedOf(const std::vector<Parameter>& all);
  // Makes the optimizer that `train` names. `parameters`: from SteppedOf. Keeps references to their
  // values.
  static std::unique_ptr<Optimizer> Create(const TrainSpec& train,
                                           const std::vector<Parameter>& parameters);
  virtual ~Optimizer() = default;

  // Does one step with the accumulated gradients, each multiplied by `gradient_scale` first.
  // Gradients stay. `step` counts from 1. Every parameter must have a gradient.
  virtual void Step(uint64_t step, double learning_rate, double gradient_scale) = 0;

  // Steps these parameters from now on, with the existing state. Their names, shapes and order
  // equal those of the parameters that the optimizer was made for.
  virtual void MoveTo(const std::vector<Parameter>& parameters) = 0;

  // Returns the whole optimizer state, in an order that depends on the parameters. Writing the
  // values restores the optimizer.
  virtual const std::vector<Moment>& moments() const = 0;
};

}  // namespace longhaul::worker
