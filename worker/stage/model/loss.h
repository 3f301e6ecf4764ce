// The end of the last stage: final norm, head and loss of one sequence chunk ("slice" in code).
//
// If the logits are large (run/model/loss_chunks.h), they are computed in chunks of tokens, in
// forward and again in backward, and only the hidden state is kept between the two. Loss and
// gradients then agree with the unchunked ones to rounding, and repeat to the bit.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/stage/model/model.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// The weight of a slice's mean loss in the loss of its microbatch. Slices have equally many
// targets. With masked targets each slice's sum is already divided by the count of the whole
// microbatch, so the weight is 1.
inline double ShareInMicrobatch(const StageOptions& options) {
  return options.masked_targets ? 1 : 1.0 / options.slices;
}

class Loss {
 public:
  // The loss of one slice. Both arguments outlive this object.
  Loss(const StageOptions& options, const Model& network);

  // Sets the targets, as Model::Loss takes them.
  void SetTargets(at::Tensor targets, at::Tensor counted);
  // `hidden`: (microbatch, tokens, hidden) fp32. Returns the loss, an fp32 scalar.
  at::Tensor Forward(const at::Tensor& hidden);
  // Adds to the parameters' gradients and returns the gradient of `hidden`, which must be the
  // argument of Forward. `start`: the gradient of the loss. `keep`: keeps the tensors that Forward
  // saved.
  at::Tensor Backward(const at::Tensor& hidden, const at::Tensor& start, bool keep);
  // Whether Forward saves logits for Backward (unless gradients are off). If not, it saves nothing.
  bool keeps_logits() const { return keeps_logits_; }

 private:
  // Returns one chunk's share of the loss: the tokens from `begin` on.
  at::Tensor OfChunk(const at::Tensor& hidden, int64_t begin) const;
  // Returns the same tokens' rows of `tensor`.
  at::Tensor RowsOf(const at::Tensor& tensor, int64_t begin) const;

  const Model& network_;
  const int64_t tokens_, chunk_;  // of a slice, of a chunk
  const bool keeps_logits_;
  at::Tensor targets_, counted_;
  at::Tensor hidden_, root_;  // saved by Forward: a leaf, and the loss
};

}  // namespace longhaul::worker
