// Which GPU this is, whatever number a process or a container gives it: workers that name the same
// one share it.
#ifndef LONGHAUL_WORKER_RPC_DEVICE_ID_H_
#define LONGHAUL_WORKER_RPC_DEVICE_ID_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace longhaul::worker {

// The UUID of the GPU that CUDA counts as `index`, as the driver's files under `folder` have it.
// CUDA counts by place on the bus those that `visible` (CUDA_VISIBLE_DEVICES) lets through; "":
// all.
// "" where the files do not say.
std::string GpuUuid(uint32_t index, std::string_view visible,
                    const std::string& folder = "/proc/driver/nvidia/gpus");

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_DEVICE_ID_H_
