// The end of the last stage: final norm, head and loss of one sequence chunk, called "slice" in
// code.
//
// If the logits are large (run/model/loss_chunks.h), they are computed for one part of the tokens
// at a time, called "chunk" below, in forward and again in backward. Between forward and backward
// only the hidden state is kept. Loss and gradients then differ from those without chunks only by
// rounding. They still repeat to the bit.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/stage/model/model.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Returns the weight of a slice's loss in the loss of its microbatch. Without masked targets, the
// loss of a slice is a mean, and slices have equally many targets. With masked targets, the sum of
// a slice is already divided by the count for the whole microbatch, so the weight is 1.
inline double ShareInMicrobatch(const StageOptions& options) {
  return options.masked_targets ? 1 : 1.0 / options.slices;
}

class Loss {
 public:
  // Computes the loss of one slice. Both arguments must outlive this object.
  Loss(const StageOptions& options, const Model& network);

  // Sets the arguments `targets` and `counted` of Model::Loss. Call it before Forward.
  void SetTargets(at::Tensor targets, at::Tensor counted);
  // Returns the loss, an fp32 scalar. `hidden`: the output of the blocks, (samples of the
  // microbatch, tokens, channels) fp32.
  at::Tensor Forward(const at::Tensor& hidden);
  // Adds to the gradients of the parameters, and returns the gradient of `hidden`. `hidden` must be
  // the argument of Forward. `start`: the gradient of the loss. `keep`: keeps the tensors that
  // Forward saved, for another Backward.
  at::Tensor Backward(const at::Tensor& hidden, const at::Tensor& start, bool keep);
  // Returns true if Forward saves the logits for Backward; with gradients off it does not. False:
  // Backward computes the logits again.
  bool keeps_logits() const { return keeps_logits_; }

 private:
  // Returns what one chunk adds to the loss. `begin`: the chunk's first token.
  at::Tensor OfChunk(const at::Tensor& hidden, int64_t begin) const;
  // Returns the rows of `tensor` for the tokens of this chunk.
  at::Tensor RowsOf(const at::Tensor& tensor, int64_t begin) const;

  const Model& network_;
  const int64_t tokens_, chunk_;  // number of tokens of a slice, and of a chunk
  const bool keeps_logits_;
  at::Tensor targets_, counted_;
  at::Tensor hidden_, root_;  // saved by Forward: autograd leaf of `hidden`, and the loss
};

}  // namespace longhaul::worker
