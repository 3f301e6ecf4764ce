// The codec sdp4bit for LibTorch's tensors on a CPU or a GPU. Replicas compress their messages with
// it.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions, and StatusError (torch_scope.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/cuda/stream.h"
#include "codec/rounding.h"

namespace longhaul::worker {

// Tensors of numbers must be contiguous fp32. A section is a tensor of bytes, in the format of
// codec/sdp4bit.
class Sdp4bitTensors {
 public:
  // `gpu`: the GPU that holds the tensors; nullopt: they are on the CPU.
  explicit Sdp4bitTensors(std::optional<cuda::Device> gpu) : gpu_(std::move(gpu)) {}

  // Encode `values` into a section, decode a section, and transform gradients in place (`back`:
  // undo the transform). Arguments are those of the functions with these names in
  // codec/sdp4bit/cpu/kernels.h. On a GPU, CUDA kernels are queued on the current stream.
  void Encode(const at::Tensor& values, uint32_t group, const codec::RoundingNoise* noise,
              uint64_t number, const at::Tensor& section) const;
  void Decode(const at::Tensor& section, uint32_t group, const at::Tensor& out) const;
  void Transform(const at::Tensor& values, bool back) const;
  // Writes the mean of the gradients of all replicas to `out`. Sums in the order of replicas.
  // `parts`: one tensor for each replica. parts[own], of this replica, has out.numel() gradients,
  // not transformed, as fp32. The others are sections of transformed numbers in groups of
  // kGradientGroup (codec/sdp4bit/format.h).
  void Mean(std::span<const at::Tensor> parts, size_t own, const at::Tensor& out) const;

 private:
  const std::optional<cuda::Device> gpu_;
};

}  // namespace longhaul::worker
