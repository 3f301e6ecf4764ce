// The optimizer of the reference loop (reference_loop.h): learning rate, clipping, AdamW and Muon
// from their definitions, on one device and for one parameter at a time. It shares no code with
// worker/stage/optimizer. AdamW's arithmetic in fp32 is PyTorch's operator, so that results can be
// compared bit for bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "run/file/run_spec.h"

namespace longhaul::testing {

// A parameter that is trained.
struct ReferenceParameter {
  std::string name;
  at::Tensor value;      // fp32 leaf on the CPU
  int64_t matrices = 0;  // of a block: how many matrices lie one below another; 0: others
};

class ReferenceOptimizer {
 public:
  ReferenceOptimizer(const TrainSpec& train, std::vector<ReferenceParameter> parameters);

  // Updates all parameters with their gradients, which it leaves as they are. `step` counts from 1.
  // Returns the squared norm of the whole gradient before clipping.
  double Step(uint64_t step);

 private:
  struct State {
    at::Tensor first, second;  // Muon has only the first
  };
  void StepAdamW(size_t i, uint64_t step, double rate, double scale);
  void StepMuon(size_t i, uint64_t step, double rate, double scale);
  at::Tensor Store(size_t i, uint64_t step, const at::Tensor& state, int shift) const;

  const TrainSpec train_;
  const std::vector<ReferenceParameter> parameters_;
  std::vector<State> states_;
};

}  // namespace longhaul::testing
