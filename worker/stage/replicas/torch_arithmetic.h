// The arithmetic of the exchange between data-parallel replicas, done by LibTorch in GPU memory.
// Everything is queued on the calling thread's current stream.
//
// It also runs on the CPU, so a machine without a GPU tests all but the GPU's own kernels.
#pragma once

#include <cstdint>
#include <memory>

#include "base/device_name.h"
#include "base/status.h"
#include "transport/replicas/arithmetic.h"

namespace longhaul::worker {

// `threads`: LibTorch's threads on the CPU. kFailedPrecondition: no such device.
StatusOr<std::unique_ptr<replicas::Arithmetic>> MakeTorchArithmetic(const DeviceName& device,
                                                                    uint32_t threads);

}  // namespace longhaul::worker
