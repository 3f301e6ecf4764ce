// The arithmetic of the exchange between data-parallel replicas (transport/replicas/arithmetic.h),
// computed by LibTorch in the memory of a GPU. Work is queued on the calling thread's current
// stream.
//
// The arithmetic also runs on the CPU, so a test without a GPU covers all except the GPU's kernels.
#pragma once

#include <cstdint>
#include <memory>

#include "base/device_name.h"
#include "base/status.h"
#include "transport/replicas/arithmetic.h"

namespace longhaul::worker {

// `threads`: number of LibTorch's threads, for the CPU. For a GPU call LoadTorchCuda first
// (torch_cuda.h). kInvalidArgument: no GPU has this index. kFailedPrecondition: the GPU or its
// driver cannot be used.
StatusOr<std::unique_ptr<replicas::Arithmetic>> MakeTorchArithmetic(const DeviceName& device,
                                                                    uint32_t threads);

}  // namespace longhaul::worker
