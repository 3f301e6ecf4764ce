// The parameters and gradients of a stage, as the exchange with data-parallel replicas reads and
// writes them. They are the stage's own tensors, or copies in host memory if the stage computes on
// a GPU and the caller asks for host memory.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/stage/model/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class SharedMemory {
 public:
  // Returns all parameters except the biases that balance experts, because the stage changes these
  // biases itself. The result is valid until the next Read; gradients only until ForgetGradients.
  std::vector<SharedParameter> Read(const std::vector<Parameter>& parameters, SharedIn memory);
  // Copies the values that the caller wrote back into the parameters. Call Read with the same
  // parameters first.
  void Write(const std::vector<Parameter>& parameters) const;
  // Drops references to the stage's own gradients, so that the stage can free them.
  void ForgetGradients();

 private:
  struct Copies {
    at::Tensor value, gradient;
    bool is_own = false;  // the stage's own tensors, not copies
  };
  std::vector<Copies> copies_;  // by parameter
};

}  // namespace longhaul::worker
