// Checks a stage's inputs (ids, activations, gradients) and wraps them as tensors over the caller's
// memory.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: kInvalidArgument
// that names the expected and the given input.
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

  StatusOr<PassInput> Read(Slice slice, const Stage::Input& input) const;
  // An activation or a gradient of a slice. `what` names it in errors.
  StatusOr<at::Tensor> ReadBoundary(std::string_view what, const codec::TensorView& view) const;

 private:
  // Ids of a whole microbatch, each in [least, end). `least`: kNoTarget, or 0.
  StatusOr<at::Tensor> ReadIds(std::string_view what, std::span<const int32_t> ids, int32_t least,
                               uint32_t end) const;

  const StageOptions* const options_;
  const at::Device device_;
};

}  // namespace longhaul::worker
