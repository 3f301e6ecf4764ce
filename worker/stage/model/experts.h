// The MLPs of this rank's experts in one block. Each MLP runs over the rows that dispatch.h has
// sent to its expert.
//
// On a GPU in bf16, one grouped product covers all experts; their weights are contiguous in memory.
// So the gradient of the weights is rounded to bf16 once for each microbatch, before it is added
// to the fp32 sum. No library writes grouped products to fp32, and a product for each expert would
// cost the host more time than the GPU.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/stage/model/layers.h"

namespace longhaul::worker {

class Experts {
 public:
  // Makes those of the block's `count` experts that this rank holds. Names of their parameters
  // begin with "<prefix><number>.".
  Experts(LayerMaker& make, const std::string& prefix, uint32_t count);

  // Runs the MLPs. `rows`: (rows, channels), sorted by expert. `counts`: number of rows of each
  // expert of this rank. Returns as many rows, in the type of matrix products.
  at::Tensor operator()(const at::Tensor& rows, const std::vector<int64_t>& counts) const;

  // One matrix (gate, up or down) of each expert of this rank.
  struct Matrices {
    std::vector<Linear> of_experts;
    at::Tensor stack;  // (experts, outputs, inputs) for grouped products; or undefined
    // The gradients of the weights, which are views of this tensor: fp32, shaped as `stack`.
    // Undefined before the first gradient.
    mutable at::Tensor gradients;
    void AddToGradients(const at::Tensor& more) const;
  };

 private:
  at::Tensor OneByOne(const at::Tensor& rows, const std::vector<int64_t>& counts) const;
  at::Tensor Together(const at::Tensor& rows, const std::vector<int64_t>& counts) const;

  Matrices gate_, up_, down_;
};

}  // namespace longhaul::worker
