// What updates a stage's parameters once a step, behind one seam: AdamW (adamw.h) and Muon
// (muon.h).
//
// An update depends on (run file's train section, step, parameter) alone: not on how layers are
// split, and not on whether the run was resumed in between. On a CPU it repeats to the bit; on a
// GPU as the rest of the stage does.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_OPTIMIZER_H_
#define LONGHAUL_WORKER_STAGE_OPTIMIZER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "run/file/run_spec.h"
#include "worker/stage/layers.h"

namespace longhaul::worker {

// How moments are called in checkpoints, behind the parameter's name.
inline constexpr std::string_view kExpAvg = ".exp_avg", kExpAvgSq = ".exp_avg_sq";  // AdamW
inline constexpr std::string_view kMomentum = ".momentum";                          // Muon

class Optimizer {
 public:
  // What is remembered of a parameter between steps, in its shape.
  struct Moment {
    std::string name;  // "<parameter>.exp_avg"
    at::Tensor value;  // fp32 or bf16, as the run file says; fp32 holds all of its values
  };

  // Without what balances experts, which no optimizer steps.
  static std::vector<Parameter> SteppedOf(const std::vector<Parameter>& all);
  // Of the kind that `train` asks for, for SteppedOf `parameters`. Keeps references to their
  // values.
  static std::unique_ptr<Optimizer> Create(const TrainSpec& train,
                                           const std::vector<Parameter>& parameters);
  virtual ~Optimizer() = default;

  // One step with the accumulated gradients, each multiplied by `gradient_scale` first; they stay.
  // `step` counts from 1. Every parameter must have a gradient.
  virtual void Step(uint64_t step, double learning_rate, double gradient_scale) = 0;

  // From now on it steps these, with what it remembers. They are alike in name, shape and order to
  // SteppedOf those that it was made of.
  virtual void MoveTo(const std::vector<Parameter>& parameters) = 0;

  // All of them, in an order that the parameters decide. Who writes other values into them has
  // restored the optimizer.
  virtual const std::vector<Moment>& moments() const = 0;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_OPTIMIZER_H_
