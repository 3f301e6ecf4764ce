// Carries out a Measure command: times the layers and codecs of a run on this worker, before there
// is a plan.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "worker/measuring/device.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Measures on the first of `devices`, and with a group of the run file on as many devices of that
// kind as the group has ranks. If the run file leaves the group open (config::GroupsLeftOpen),
// tries every size above one. Takes a second or two for each, after waiting for the turn on a
// shared GPU. kResourceExhausted: a device lacks memory for a few layers of the model.
StatusOr<v1::LayerTimes> MeasureModel(const RunSpec& spec, uint32_t vocabulary,
                                      std::span<const WorkerDevice> devices,
                                      const MakeStage& make_group);

}  // namespace longhaul::worker
