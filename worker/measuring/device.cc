#include "worker/measuring/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/cuda/device_check.h"
#include "base/log.h"
#include "worker/measuring/device_id.h"
#include "worker/stage/device/torch_cuda.h"

namespace longhaul::worker {
namespace {

// The first use of a GPU takes seconds where no other process has it open.
constexpr absl::Duration kGpuCheck = absl::Seconds(60);
// Part of a GPU's memory that is left to CUDA itself, fragmentation and the codecs' pools.
constexpr double kGpuMemoryReserve = 0.05;

uint64_t HostMemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

v1::Device ThisCpu() {
  v1::Device device;
  device.set_kind("cpu");
  device.set_cores(std::thread::hardware_concurrency());
  device.set_memory_bytes(HostMemoryBytes());
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      device.set_name(line.substr(colon + 2));
      break;
    }
  }
  return device;
}

v1::Device ThatGpu(const cuda::Device& gpu) {
  v1::Device device;
  device.set_kind("cuda");
  device.set_name(gpu.info().name);
  device.set_memory_bytes(static_cast<uint64_t>(static_cast<double>(gpu.info().memory_bytes) *
                                                (1 - kGpuMemoryReserve)));
  device.set_host_memory_bytes(HostMemoryBytes());
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  device.set_uuid(GpuUuid(static_cast<uint32_t>(gpu.index()), visible == nullptr ? "" : visible));
  return device;
}

uint64_t Part(uint64_t bytes, double share) {
  return static_cast<uint64_t>(static_cast<double>(bytes) * share);
}

StatusOr<WorkerDevice> OpenWhole(const DeviceName& name) {
  if (!name.cuda_index.has_value()) return WorkerDevice{ThisCpu(), std::nullopt};
  LH_ASSIGN_OR_RETURN(const cuda::Device device, cuda::Device::Open(*name.cuda_index));
  LH_RETURN_IF_ERROR(cuda::CheckDevice(device, Deadline::After(kGpuCheck)));
  LH_RETURN_IF_ERROR(LoadTorchCuda(DefaultTorchCudaPath()));
  return WorkerDevice{ThatGpu(device), device};
}

}  // namespace

DeviceName WorkerDevice::name() const {
  DeviceName name;
  if (gpu) name.cuda_index = static_cast<uint32_t>(gpu->index());
  return name;
}

StatusOr<WorkerDevice> OpenDevice(const DeviceName& name, double memory_share) {
  LH_ASSIGN_OR_RETURN(WorkerDevice device, OpenWhole(name));
  v1::Device& description = device.description;
  description.set_memory_bytes(Part(description.memory_bytes(), memory_share));
  description.set_host_memory_bytes(Part(description.host_memory_bytes(), memory_share));
  return device;
}

std::vector<DeviceName> FindDevices() {
  constexpr uint32_t kMostGpus = 1024;
  std::vector<DeviceName> gpus;
  Status status;
  for (uint32_t index = 0; index < kMostGpus && status.ok(); ++index) {
    status = cuda::Device::Open(index).status();
    if (status.ok()) gpus.push_back({.cuda_index = index});
  }
  if (!gpus.empty()) return gpus;
  if (::access("/proc/driver/nvidia/version", F_OK) == 0) {
    LogWarning("stages compute on the CPU, because no GPU of this machine can be used: {}",
               Message(status));
  }
  return {DeviceName{}};
}

StatusOr<std::vector<WorkerDevice>> OpenDevices(std::span<const DeviceName> names,
                                                double memory_share) {
  std::vector<WorkerDevice> devices;
  const auto on_cpu = static_cast<uint32_t>(
      std::ranges::count_if(names, [](const DeviceName& name) { return !name.cuda_index; }));
  uint32_t place = 0;  // among those on the CPU
  for (const DeviceName& name : names) {
    const double share = name.cuda_index ? memory_share : memory_share / on_cpu;
    LH_ASSIGN_OR_RETURN(WorkerDevice device, OpenDevice(name, share));
    if (!name.cuda_index) {
      const uint32_t cores = device.description.cores();
      device.description.set_cores(std::max(cores / on_cpu + (place < cores % on_cpu ? 1 : 0), 1u));
      ++place;
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace longhaul::worker
