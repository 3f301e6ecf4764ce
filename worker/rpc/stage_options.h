// From a run file and a cell to what a stage is made of.
#ifndef LONGHAUL_WORKER_RPC_STAGE_OPTIONS_H_
#define LONGHAUL_WORKER_RPC_STAGE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/cuda/device.h"
#include "base/device_name.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Where the stages of a run have their tensors: a replay's, which sleep, on the host.
std::optional<cuda::Device> GpuOf(const RunSpec& spec, const std::optional<cuda::Device>& gpu);

// What a stage with these layers and roles is made of. `ranks`: of a group their devices, the first
// of which is `gpu`; empty: there is one rank. `threads` are each rank's.
StageOptions StageOptionsFor(const RunSpec& spec, uint32_t vocabulary, const LayerRange& layers,
                             const Roles& roles, uint32_t threads,
                             const std::optional<cuda::Device>& gpu,
                             std::vector<DeviceName> ranks = {});

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_STAGE_OPTIONS_H_
