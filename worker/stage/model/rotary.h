// Rotary position embeddings, as the published weights of Llama and Qwen need them: channel i of
// the first half of a head and channel i of its second half form a pair, which is rotated.
//
// Internal to worker/stage (it shows LibTorch). Immutable, so thread-safe. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "run/model/model_spec.h"

namespace longhaul::worker {

class Rotary {
 public:
  // Makes tables for positions 0 to model.context - 1. The angle of pair i is position / theta^(2i
  // / channels that are turned), or less with ModelSpec::rope_scaling. Angles are computed in
  // double; tables are fp32. `windowed`: for layers with a window, where these differ.
  Rotary(const ModelSpec& model, at::Device device, bool windowed = false);

  // Rotates the first channels of `x`, (rows, tokens, heads, channels of a head). `first`: the
  // position of each row's first token; first + tokens must not exceed the context. Computes in
  // fp32, and returns a tensor of the shape and type of `x`.
  at::Tensor Turn(const at::Tensor& x, int64_t first = 0) const;

 private:
  // (context, 1, channels that are turned / 2), times ModelSpec::rope_attention_factor
  at::Tensor cosines_, sines_;
};

}  // namespace longhaul::worker
