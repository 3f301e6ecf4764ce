// Identifies a GPU across processes and containers, which may number it differently: workers that
// report the same UUID share the GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longhaul::worker {

// Returns the UUID of the GPU that CUDA numbers `index`, from the driver's files under `folder`.
// CUDA numbers GPUs by bus position, among the ones that `visible` (CUDA_VISIBLE_DEVICES) names;
// "": all. Returns "" if the files do not tell.
std::string GpuUuid(uint32_t index, std::string_view visible,
                    const std::string& folder = "/proc/driver/nvidia/gpus");

}  // namespace longhaul::worker
