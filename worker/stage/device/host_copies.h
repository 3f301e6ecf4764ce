// Copies tensors from a GPU to host memory at the full rate of the GPU's bus.
//
// Four threads work in parallel; each copies one tensor at a time. Each thread has a CUDA stream of
// its own, so that copies do not wait for kernels. Each thread has two pinned buffers: the GPU
// fills one while the thread reads the other.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/status.h"

namespace longhaul::worker {

class HostCopies {
 public:
  // Pinned memory of all threads together. The planner reserves it (planner/memory.cc).
  static constexpr size_t kPinnedBytes = size_t{64} << 20;

  // One tensor to copy.
  struct Copy {
    const void* data_dev = nullptr;  // in GPU memory, contiguous; nothing may still write to it
    size_t elements = 0;
    bool bf16 = false;                     // else fp32
    std::vector<float>* values = nullptr;  // receives the values in fp32; replaced
  };

  // kResourceExhausted: the host cannot pin the buffers. kInternal: CUDA failed.
  static StatusOr<std::unique_ptr<HostCopies>> Create(const cuda::Device& device);
  virtual ~HostCopies() = default;

  // Copies all tensors and waits until they are copied. kDeadlineExceeded: the GPU does not answer
  // within 60 s. kResourceExhausted: not enough host memory. kInternal: CUDA failed. If several
  // copies fail, returns the error of one. One call at a time, on any thread.
  virtual Status Run(std::span<const Copy> copies) = 0;
};

}  // namespace longhaul::worker
