// Copies tensors from a GPU to host memory at the full rate of its bus.
//
// A few threads copy one tensor each at a time. Every thread has a stream of its own, so that
// copies do not wait for kernels, and two pinned buffers: one is filled while the other is read.
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

  struct Copy {
    const void* data_dev = nullptr;  // row-major; complete, and not written during the copy
    size_t elements = 0;
    bool bf16 = false;                     // else fp32
    std::vector<float>* values = nullptr;  // receives the values in fp32; replaced
  };

  // kResourceExhausted if the host cannot pin the buffers.
  static StatusOr<std::unique_ptr<HostCopies>> Create(const cuda::Device& device);
  virtual ~HostCopies() = default;

  // Copies all tensors and waits for them. kDeadlineExceeded: the device does not answer.
  // kResourceExhausted: not enough host memory. If several copies fail, returns the error of
  // one. One call at a time.
  virtual Status Run(std::span<const Copy> copies) = 0;
};

}  // namespace longhaul::worker
