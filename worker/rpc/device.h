// What a worker computes on: the devices that it offers to its coordinator.
#ifndef LONGHAUL_WORKER_RPC_DEVICE_H_
#define LONGHAUL_WORKER_RPC_DEVICE_H_

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

// `memory_share`: the part of the device's memory, and of its host's, that this worker may plan
// with, where several share a device; of a GPU's some is left free besides. After a check that it
// works. A GPU needs both modules, longhaul's and LibTorch's part for GPUs; call it before anything
// else uses LibTorch. kFailedPrecondition with what is missing.
StatusOr<WorkerDevice> OpenDevice(const DeviceName& name, double memory_share = 1);

// Of one worker. Several on the CPU are ranks of one machine: each has its part of the cores and of
// the memory, so that who adds them up has what there is. GPUs each say the whole of their host's
// memory, which the worker has once.
StatusOr<std::vector<WorkerDevice>> OpenDevices(std::span<const DeviceName> names,
                                                double memory_share = 1);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_DEVICE_H_
