// Measure carried out: what the layers and codecs of a run take on this worker, before there is a
// plan.
#ifndef LONGHAUL_WORKER_RPC_MODEL_TIMING_H_
#define LONGHAUL_WORKER_RPC_MODEL_TIMING_H_

#include <cstdint>
#include <span>

#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "worker/rpc/device.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// On the first of `devices`, and where the run file has a group on as many of that kind as the
// group has ranks; of groups that it leaves open (config::GroupsLeftOpen) all are tried that have
// several ranks. Takes a second or two for each, after a turn on GPUs that several workers share.
// kResourceExhausted where a device has no room for some layers of the model beside what is there.
StatusOr<v1::LayerTimes> MeasureModel(const RunSpec& spec, uint32_t vocabulary,
                                      std::span<const WorkerDevice> devices,
                                      const MakeStage& make_group);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_MODEL_TIMING_H_
