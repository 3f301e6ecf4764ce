// Rotary position embeddings, in the convention of Llama's and Qwen's published weights: channel i
// of a head's first half and channel i of its second half form a pair that is rotated.
//
// Internal to worker/stage (it shows LibTorch). Immutable. Errors: LibTorch's exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "run/model/model_spec.h"

namespace longhaul::worker {

class Rotary {
 public:
  // Makes tables for positions 0 to model.context - 1. Pair i of a head's channels rotates by
  // position / theta^(2i / channels), or slower (ModelSpec::rope_scaling). Angles are computed in
  // double; tables are fp32.
  Rotary(const ModelSpec& model, at::Device device);

  // Rotates `x`, (rows, tokens, heads, channels), whose first token has position `first`. Computes
  // in fp32 and returns the type of `x`.
  at::Tensor Turn(const at::Tensor& x, int64_t first = 0) const;

 private:
  at::Tensor cosines_, sines_;  // (context, 1, channels / 2)
};

}  // namespace longhaul::worker
