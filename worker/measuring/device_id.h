// Identifies a GPU by its UUID. Processes and containers may number the same GPU differently, so
// only an equal UUID shows that two workers share a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longhaul::worker {

// Returns the UUID of the GPU that CUDA numbers `index`, from the driver's files under `folder`.
// `visible`: the value of CUDA_VISIBLE_DEVICES, which lists GPUs by number or UUID; "": all GPUs.
// Assumes that GPUs are numbered by position on the bus. Returns "" if the files do not tell.
std::string GpuUuid(uint32_t index, std::string_view visible,
                    const std::string& folder = "/proc/driver/nvidia/gpus");

}  // namespace longhaul::worker
