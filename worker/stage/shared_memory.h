// Parameters and gradients of a stage as its replicas see them: its own memory or, of a GPU where
// the host's is asked for, copies.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_SHARED_MEMORY_H_
#define LONGHAUL_WORKER_STAGE_SHARED_MEMORY_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/stage/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class SharedMemory {
 public:
  // Of all but what balances experts, which the stage moves by itself.
  std::vector<SharedParameter> Read(const std::vector<Parameter>& parameters, SharedIn memory);
  // After Read of the same parameters: values become theirs.
  void Write(const std::vector<Parameter>& parameters) const;
  // Lets go of gradients that are the stage's own, so that it can free them.
  void ForgetGradients();

 private:
  struct Copies {
    at::Tensor value, gradient;
    bool is_own = false;
  };
  std::vector<Copies> copies_;  // by parameter
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_SHARED_MEMORY_H_
