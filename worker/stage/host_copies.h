// Copies of a GPU's tensors in the host's memory, as fast as its bus carries them.
//
// A few threads take a tensor each. Every one has a stream of its own, so that the copies wait for
// nothing that is computed, and two pinned buffers: one is filled while the other one is read.
#ifndef LONGHAUL_WORKER_STAGE_HOST_COPIES_H_
#define LONGHAUL_WORKER_STAGE_HOST_COPIES_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/status.h"

namespace longhaul::worker {

class HostCopies {
 public:
  // Of pinned memory, all threads together; the planner counts it (coordinator/planner/memory.cc).
  static constexpr size_t kPinnedBytes = size_t{64} << 20;

  struct Copy {
    const void* data_dev = nullptr;  // row-major; whole, and nothing writes it meanwhile
    size_t elements = 0;
    bool bf16 = false;                     // else fp32
    std::vector<float>* values = nullptr;  // takes them, in fp32; what it had is gone
  };

  // kResourceExhausted where the host cannot pin the buffers.
  static StatusOr<std::unique_ptr<HostCopies>> Create(const cuda::Device& device);
  virtual ~HostCopies() = default;

  // Until all are there. kDeadlineExceeded for a device that does not answer; of several errors
  // one. kResourceExhausted where the host has not the memory. One call at a time.
  virtual Status Run(std::span<const Copy> copies) = 0;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_HOST_COPIES_H_
