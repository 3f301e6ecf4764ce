// Makes StageOptions from a run file and a cell.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/cuda/device.h"
#include "base/device_name.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Returns the GPU that holds the tensors of a cell's stage; nullopt: they are in host memory.
// `gpu`: the cell's device; nullopt: the CPU. The result is `gpu`, except for a replay, a run that
// sleeps for recorded times instead of computing: its tensors are in host memory.
std::optional<cuda::Device> GpuOf(const RunSpec& spec, const std::optional<cuda::Device>& gpu);

// Returns the options of a stage with these layers and roles. `vocabulary`: number of token ids.
// `threads`: CPU threads of each rank. `gpu`: the cell's device, as for GpuOf. `ranks`: the devices
// of the tensor-parallel ranks that compute the stage together, the cell's device first; empty: one
// rank, whatever the run file says.
StageOptions StageOptionsFor(const RunSpec& spec, uint32_t vocabulary, const LayerRange& layers,
                             const Roles& roles, uint32_t threads,
                             const std::optional<cuda::Device>& gpu,
                             std::vector<DeviceName> ranks = {});

}  // namespace longhaul::worker
