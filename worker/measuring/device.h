// Opens the devices that a worker offers to its coordinator: the CPU and GPUs.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/device_name.h"
#include "base/status.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

struct WorkerDevice {
  v1::Device description;           // for Hello
  std::optional<cuda::Device> gpu;  // nullopt: the CPU

  DeviceName name() const;
};

// Opens a device and checks that it works. `memory_share`: the part of the memory of the device and
// its host that this worker may plan with, if several workers share the device; some GPU memory is
// also left free. A GPU needs longhaul's and LibTorch's CUDA modules: call this before any use of
// LibTorch. kFailedPrecondition names the missing part.
StatusOr<WorkerDevice> OpenDevice(const DeviceName& name, double memory_share = 1);

// Opens all devices of one worker. Several CPU "devices" are ranks of one machine: each reports its
// part of cores and memory, so that their sum is the machine. Each GPU reports all memory of its
// host, which the worker has only once.
StatusOr<std::vector<WorkerDevice>> OpenDevices(std::span<const DeviceName> names,
                                                double memory_share = 1);

}  // namespace longhaul::worker
