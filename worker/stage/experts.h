// The MLPs of a block's experts that this rank has, each over the tokens that were sent to it.
//
// On a GPU in bf16 the products of all experts are one call each, over their weights one behind the
// other. The gradient of weights is then rounded to bf16 for each microbatch, before it is added to
// the sum in fp32: no library makes such products into fp32, and one an expert would take the host
// longer than all of them take the GPU.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_EXPERTS_H_
#define LONGHAUL_WORKER_STAGE_EXPERTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/stage/layers.h"

namespace longhaul::worker {

class Experts {
 public:
  // `count` experts, whose parameters' names begin with "<prefix><number>.".
  Experts(LayerMaker& make, const std::string& prefix, uint32_t count);

  // `rows`: (rows, channels), those of one expert below those of the one before; `counts` of each
  // that this rank has. As many rows, in the type of products.
  at::Tensor operator()(const at::Tensor& rows, const std::vector<int64_t>& counts) const;

  // One of the matrices of every expert.
  struct Matrices {
    std::vector<Linear> of_experts;
    at::Tensor stack;  // (experts, outputs, inputs), what is multiplied; or undefined
    // As `stack`, in fp32: what the gradients of weights are parts of, once there are any.
    mutable at::Tensor gradients;
    void AddToGradients(const at::Tensor& more) const;
  };

 private:
  at::Tensor OneByOne(const at::Tensor& rows, const std::vector<int64_t>& counts) const;
  at::Tensor Together(const at::Tensor& rows, const std::vector<int64_t>& counts) const;

  Matrices gate_, up_, down_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_EXPERTS_H_
