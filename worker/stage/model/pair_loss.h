// The end of the last stage for training on preferences (train.dpo, DpoSpec): final norm, head and
// loss over pairs of answers.
//
// Documents 2k and 2k + 1 of a row are the chosen and the rejected answer of a pair, if both have
// targets. Other documents do not count. The margin of a pair is
//   beta * ((logp(chosen) - logp_ref(chosen)) - (logp(rejected) - logp_ref(rejected))),
// where logp is the sum of the log-probabilities of an answer's targets, and logp_ref the same
// without adapters. The gradient of the loss is that of a cross-entropy in which all targets of an
// answer have one weight, so logits are computed in chunks as in loss.h.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "run/file/run_spec.h"
#include "worker/stage/model/model.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// What the slices (sequence chunks) of a microbatch have in common: for each pair the sums over the
// slices so far, fp64. The answers of a pair may lie in several slices, so its margin is known
// after the forward of the last one.
struct PairSums {
  at::Tensor reference, own;    // logp(rejected) - logp(chosen), without and with adapters
  at::Tensor chosen, rejected;  // number of targets
  // The gradient of the loss by the cross-entropies of the chosen answer; set by the last slice.
  at::Tensor slopes;
};

class PairLoss {
 public:
  // Computes the loss of slice `index` of microbatches. `options` and `network` must outlive this
  // object; options.train.dpo must be set. `sums`: of the microbatch; its slices run forward in
  // order, and backward after that.
  PairLoss(const StageOptions& options, const Model& network, std::shared_ptr<PairSums> sums,
           uint32_t index);

  // Call it before TakeReference. `targets`: (rows, tokens of the slice) int64. `documents`: (rows,
  // context) int64. `counted`: Stage::Input::counted, an fp32 scalar.
  void SetTargets(const at::Tensor& targets, const at::Tensor& counted,
                  const at::Tensor& documents);
  // Computes logp_ref. Call it before Forward. `hidden`: the output of the blocks without adapters,
  // (rows, tokens, channels) fp32; not kept.
  void TakeReference(const at::Tensor& hidden);
  // Returns the loss and the three PreferenceSums, (4) fp64: zeros before the last slice. The loss
  // is the sum over pairs, divided by `counted`. `hidden`: the output of the blocks with adapters.
  at::Tensor Forward(const at::Tensor& hidden);
  // Returns the gradient of `hidden`, the argument of Forward. `start` and `keep`: as
  // Loss::Backward.
  at::Tensor Backward(const at::Tensor& hidden, const at::Tensor& start, bool keep);
  // As Loss::keeps_logits.
  bool keeps_logits() const { return keeps_logits_; }

 private:
  // Returns the cross-entropies of a chunk's tokens, fp32; 0 for tokens without a target. `hidden`:
  // of these tokens. `begin`: the chunk's first token.
  at::Tensor OfChunk(const at::Tensor& hidden, int64_t begin) const;
  // The same for all tokens, without gradients.
  at::Tensor OfAll(const at::Tensor& hidden) const;
  // Adds to the sum of each pair. `of_tokens`: a number for each token. The first slice begins with
  // zeros.
  void AddTo(at::Tensor* sums, const at::Tensor& of_tokens) const;
  int64_t TokensFrom(int64_t begin) const;

  const DpoSpec dpo_;
  const Model& network_;
  const std::shared_ptr<PairSums> sums_;
  const bool is_first_, is_last_;         // of the slices
  const int64_t first_token_;             // of the slice, in its row
  const int64_t tokens_, chunk_, pairs_;  // tokens of a slice and of a chunk; places of pairs
  const bool keeps_logits_;
  at::Tensor targets_, counted_;
  at::Tensor pair_;   // of each token its pair, int64
  at::Tensor signs_;  // of each token 1 (a target of a chosen answer), -1 (of a rejected one) or 0
  at::Tensor hidden_, root_;  // saved by Forward: autograd leaf of `hidden`, and cross-entropies
};

}  // namespace longhaul::worker
