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
// its host that this worker may plan with; less than 1 if several workers share the device. Some
// GPU memory is always left free. For a GPU, call this before any use of LibTorch, because it loads
// the CUDA modules of longhaul and LibTorch. kFailedPrecondition: a part is missing; the message
// names it.
StatusOr<WorkerDevice> OpenDevice(const DeviceName& name, double memory_share = 1);

// Opens all devices of one worker. If `names` has the CPU several times, each reports an equal part
// of its cores and memory. Each GPU reports the host's memory in full, although the worker has this
// memory only once.
StatusOr<std::vector<WorkerDevice>> OpenDevices(std::span<const DeviceName> names,
                                                double memory_share = 1);

}  // namespace longhaul::worker
