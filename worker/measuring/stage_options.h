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

// The GPU that holds the tensors of a run's stages; nullopt: the host. Replays sleep on the host.
std::optional<cuda::Device> GpuOf(const RunSpec& spec, const std::optional<cuda::Device>& gpu);

// Options of a stage with these layers and roles. `ranks`: devices of a group, the first equal to
// `gpu`; empty: one rank. `threads`: for each rank.
StageOptions StageOptionsFor(const RunSpec& spec, uint32_t vocabulary, const LayerRange& layers,
                             const Roles& roles, uint32_t threads,
                             const std::optional<cuda::Device>& gpu,
                             std::vector<DeviceName> ranks = {});

}  // namespace longhaul::worker
