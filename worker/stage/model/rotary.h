// Rotary position embeddings, as the published weights of Llama and Qwen need them: channel i of
// the first half of a head and channel i of its second half form a pair, which is rotated.
//
// Internal to worker/stage (it shows LibTorch). Immutable. Errors: LibTorch's exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "run/model/model_spec.h"

namespace longhaul::worker {

class Rotary {
 public:
  // Makes tables for positions 0 to model.context - 1. The angle of pair i is position / theta^(2i
  // / channels of a head), or less with ModelSpec::rope_scaling. Angles are computed in double;
  // tables are fp32.
  Rotary(const ModelSpec& model, at::Device device);

  // Rotates `x`, (rows, tokens, heads, channels). `first`: the position of the first token.
  // Computes in fp32, and returns the type of `x`.
  at::Tensor Turn(const at::Tensor& x, int64_t first = 0) const;

 private:
  at::Tensor cosines_, sines_;  // (context, 1, channels / 2)
};

}  // namespace longhaul::worker
