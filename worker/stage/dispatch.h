// Sends tokens to the experts that the router has chosen for them, and brings back what those have
// computed: the one place that knows where experts are.
//
// A token has a slot for each of its experts. Slots are sorted by expert, and within an expert by
// token, so that an expert's tokens lie one below another and each time in the same order. Nobody
// is dropped: an expert takes as many as come.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_DISPATCH_H_
#define LONGHAUL_WORKER_STAGE_DISPATCH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace longhaul::worker {

class Dispatch {
 public:
  // `chosen`: (tokens, slots of a token) int64, numbers below `experts`. On a GPU the host waits
  // for the counts.
  Dispatch(const at::Tensor& chosen, int64_t experts);

  // Tokens of each expert.
  const std::vector<int64_t>& counts() const { return counts_; }
  // What each expert gets of `rows`, (tokens, channels). The gradient of a token is the sum over
  // its slots.
  std::vector<at::Tensor> Send(const at::Tensor& rows) const;
  // The weighted sums of what experts gave: an fp32 row for each token, summed slot by slot.
  // `weights`: (tokens, slots of a token) fp32.
  at::Tensor Combine(const std::vector<at::Tensor>& of_experts, const at::Tensor& weights) const;

 private:
  std::vector<int64_t> counts_;
  at::Tensor tokens_;  // of each slot in the order of experts
  at::Tensor places_;  // (tokens, slots of a token): where in that order a slot stands
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_DISPATCH_H_
