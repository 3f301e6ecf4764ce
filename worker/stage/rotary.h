// Rotary position embeddings in the convention of Llama's and Qwen's published weights: channel i
// of the first half of a head and channel i of its second half are the pair that is turned.
//
// Internal to worker/stage (it shows LibTorch). Immutable. Errors: LibTorch's exceptions.
#ifndef LONGHAUL_WORKER_STAGE_ROTARY_H_
#define LONGHAUL_WORKER_STAGE_ROTARY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "run/model/model_spec.h"

namespace longhaul::worker {

class Rotary {
 public:
  // Tables for positions 0 to model.context - 1. Pair i of a head's channels turns by position /
  // theta^(2i / channels), or slower (ModelSpec::rope_scaling). Angles are computed in double; the
  // tables are fp32.
  Rotary(const ModelSpec& model, at::Device device);

  // `x`: (rows, tokens, heads, channels), of which the first token stands at `first`. Turned in
  // fp32; of the type of `x`.
  at::Tensor Turn(const at::Tensor& x, int64_t first = 0) const;

 private:
  at::Tensor cosines_, sines_;  // (context, 1, channels / 2)
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_ROTARY_H_
