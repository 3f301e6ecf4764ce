// The end of the last stage: final norm, head and loss of a slice's hidden state.
//
// Where the logits are large (run/model/loss_chunks.h) they are computed for one chunk of tokens
// after the other, forward and again in backward: what stays between the two is the hidden state.
// The loss and the gradients are then those of the whole within rounding, and the same each time.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_LOSS_H_
#define LONGHAUL_WORKER_STAGE_LOSS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/stage/model.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// What a slice's loss counts in that of its microbatch. Slices have equally many targets; where
// some do not count the sum over the others is divided by what a whole microbatch has of these.
inline double ShareInMicrobatch(const StageOptions& options) {
  return options.masked_targets ? 1 : 1.0 / options.slices;
}

class Loss {
 public:
  // Of one slice of a microbatch of a last stage; both outlive it.
  Loss(const StageOptions& options, const Model& network);

  // What it is over: `targets` and `counted` as Model::Loss takes them.
  void SetTargets(at::Tensor targets, at::Tensor counted);
  // Of `hidden`, (microbatch, tokens, hidden) fp32: an fp32 scalar.
  at::Tensor Forward(const at::Tensor& hidden);
  // With `start`, the gradient of the loss: adds to the parameters' gradients and gives that of
  // `hidden`, which is what Forward had. With `keep` what Forward left stays.
  at::Tensor Backward(const at::Tensor& hidden, const at::Tensor& start, bool keep);
  // Forward leaves logits for Backward, unless no graph is kept anyway. Else it leaves nothing.
  bool keeps_logits() const { return keeps_logits_; }

 private:
  // The share of the tokens from `begin` on, as many as a chunk has.
  at::Tensor OfChunk(const at::Tensor& hidden, int64_t begin) const;
  // Those rows.
  at::Tensor RowsOf(const at::Tensor& tensor, int64_t begin) const;

  const Model& network_;
  const int64_t tokens_, chunk_;  // of a slice, of a chunk
  const bool keeps_logits_;
  at::Tensor targets_, counted_;
  at::Tensor hidden_, root_;  // what Forward keeps: a leaf, and the loss
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_LOSS_H_
