// Checks a stage's inputs (ids, activations, gradients) and wraps them as tensors over the caller's
// memory.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: kInvalidArgument;
// the message says what was expected and what was given.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "worker/stage/passes/microbatch_pass.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class StageInputReader {
 public:
  // `options` must outlive this object.
  StageInputReader(const StageOptions* options, at::Device device)
      : options_(options), device_(device) {}

  // Returns the inputs of a slice's forward, as far as this stage needs them. The memory of `input`
  // must outlive the result. `training`: a Backward follows.
  StatusOr<PassInput> Read(Slice slice, const Stage::Input& input, bool training) const;
  // Wraps an activation (forward) or a gradient (backward) of a slice, (samples, tokens, channels).
  // The memory of `view` must outlive the result. Error messages call the tensor `what`.
  StatusOr<at::Tensor> ReadBoundary(std::string_view what, const codec::TensorView& view,
                                    Direction direction) const;

 private:
  // Returns the ids of a whole microbatch, (rows, context). Each must be in [least, end). `least`:
  // kNoTarget or 0. Error messages call them `what`.
  StatusOr<at::Tensor> ReadIds(std::string_view what, std::span<const int32_t> ids, int32_t least,
                               uint32_t end) const;

  const StageOptions* const options_;
  const at::Device device_;
};

}  // namespace longhaul::worker
