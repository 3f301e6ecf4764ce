// Collectives by NCCL on the GPUs of one machine. Each rank has its own device; ranks are threads
// or processes.
//
// Uses the libnccl.so.2 that the process has loaded (LibTorch brings one), else one beside LibTorch
// or in the system's library path. NCCL chooses the order in which it adds the ranks' values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"

namespace longhaul::collective::nccl {

struct Options {
  // Tried in this order. If the process has already loaded a library of this name, the loaded one
  // is used.
  std::vector<std::string> libraries = {"libnccl.so.2"};
};

// All ranks call Create, each with another device. Blocks until NCCL has connected all ranks.
// kFailedPrecondition: there is no NCCL, it is older than 2.18, or ranks have different versions.
// kDeadlineExceeded: a rank did not come by `deadline`. kAborted: the group has ended. kInternal:
// NCCL or CUDA failed.
StatusOr<std::unique_ptr<Communicator>> Create(const std::shared_ptr<Member>& member,
                                               const cuda::Device& device, const Options& options,
                                               Deadline deadline);

}  // namespace longhaul::collective::nccl
