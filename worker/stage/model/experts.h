// The MLPs of this rank's experts in one block. Each runs over the tokens that dispatch.h sent to
// it.
//
// On a GPU in bf16 one grouped product covers all experts, over weights that lie behind each other
// in memory. The gradient of weights is then rounded to bf16 once a microbatch, before it is added
// to the fp32 sum: no library writes grouped products to fp32, and one product an expert would cost
// the host more time than the GPU.
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
  // Makes `count` experts. Their parameters' names begin with "<prefix><number>.".
  Experts(LayerMaker& make, const std::string& prefix, uint32_t count);

  // Runs the MLPs. `rows`: (rows, channels), sorted by expert; `counts`: rows of each expert of
  // this rank. Returns as many rows, in the type of matrix products.
  at::Tensor operator()(const at::Tensor& rows, const std::vector<int64_t>& counts) const;

  // The same matrix (gate, up or down) of every expert.
  struct Matrices {
    std::vector<Linear> of_experts;
    at::Tensor stack;  // (experts, outputs, inputs) for grouped products; or undefined
    // fp32, shaped as `stack`; the gradients of the weights are views of it. Undefined before the
    // first gradient.
    mutable at::Tensor gradients;
    void AddToGradients(const at::Tensor& more) const;
  };

 private:
  at::Tensor OneByOne(const at::Tensor& rows, const std::vector<int64_t>& counts) const;
  at::Tensor Together(const at::Tensor& rows, const std::vector<int64_t>& counts) const;

  Matrices gate_, up_, down_;
};

}  // namespace longhaul::worker
