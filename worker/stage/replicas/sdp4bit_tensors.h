// The codec sdp4bit for LibTorch's tensors, with the kernels of the tensors' device. Replicas
// compress their messages with it.
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

// Tensors are contiguous fp32. Sections are bytes in the format of codec/sdp4bit.
class Sdp4bitTensors {
 public:
  // `gpu`: the tensors' GPU; nullopt: tensors are on the CPU.
  explicit Sdp4bitTensors(std::optional<cuda::Device> gpu) : gpu_(std::move(gpu)) {}

  // Call the kernels of codec/sdp4bit/cpu/kernels.h, or their CUDA forms.
  void Encode(const at::Tensor& values, uint32_t group, const codec::RoundingNoise* noise,
              uint64_t number, const at::Tensor& section) const;
  void Decode(const at::Tensor& section, uint32_t group, const at::Tensor& out) const;
  void Transform(const at::Tensor& values, bool back) const;
  // Writes the mean of all replicas' gradients to `out`, summed in the order of replicas. `parts`:
  // sections of transformed numbers in groups of kGradientGroup; parts[own] are this replica's own
  // out.numel() numbers.
  void Mean(std::span<const at::Tensor> parts, size_t own, const at::Tensor& out) const;

 private:
  const std::optional<cuda::Device> gpu_;
};

}  // namespace longhaul::worker
