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
  v1::Device description;           // what the worker tells the coordinator (v1::Hello)
  std::optional<cuda::Device> gpu;  // nullopt: the CPU

  DeviceName name() const;
};

// Opens a device and checks that it works. `memory_share`, above 0: the part of the device's and
// host's memory that the description reports; below 1 if several workers share the device. 5 % of a
// GPU's memory is never reported. For a GPU, call this before any use of LibTorch, because it loads
// the CUDA modules of longhaul and LibTorch. kInvalidArgument: no GPU has this index.
// kFailedPrecondition: there is no GPU, it or the driver is too old, or a module is missing; the
// message says which.
StatusOr<WorkerDevice> OpenDevice(const DeviceName& name, double memory_share = 1);

// Returns the devices of a worker for which nobody names any: all GPUs that work, else the CPU.
// Logs what keeps the GPUs of a machine with NVIDIA's driver from being used.
std::vector<DeviceName> FindDevices();

// Opens all devices of one worker. If `names` has the CPU several times, each entry reports an
// equal part of the CPU's cores and memory. Each GPU reports the same host memory, which the worker
// has only once.
StatusOr<std::vector<WorkerDevice>> OpenDevices(std::span<const DeviceName> names,
                                                double memory_share = 1);

}  // namespace longhaul::worker
