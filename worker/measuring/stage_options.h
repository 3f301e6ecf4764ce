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

// Returns the GPU that holds the tensors of a run's stages; nullopt: the host. A replay computes
// nothing, so its tensors are on the host. `gpu`: the cell's device.
std::optional<cuda::Device> GpuOf(const RunSpec& spec, const std::optional<cuda::Device>& gpu);

// Returns the options of a stage with these layers and roles. `threads`: CPU threads of each rank.
// `ranks`: the devices of a group's ranks, the first equal to `gpu`; empty: one rank.
StageOptions StageOptionsFor(const RunSpec& spec, uint32_t vocabulary, const LayerRange& layers,
                             const Roles& roles, uint32_t threads,
                             const std::optional<cuda::Device>& gpu,
                             std::vector<DeviceName> ranks = {});

}  // namespace longhaul::worker
