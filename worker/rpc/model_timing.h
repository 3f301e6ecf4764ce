// Measure carried out: what the layers and codecs of a run take on one device, before there is a
// plan.
#ifndef LONGHAUL_WORKER_RPC_MODEL_TIMING_H_
#define LONGHAUL_WORKER_RPC_MODEL_TIMING_H_

#include <cstdint>
#include <optional>

#include "base/cuda/device.h"
#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"

namespace longhaul::worker {

// Takes a second or two, after a turn on a GPU that several workers share. kResourceExhausted where
// the device has no room for some layers of the model beside what is there.
StatusOr<v1::LayerTimes> MeasureModel(const RunSpec& spec, uint32_t vocabulary,
                                      const std::optional<cuda::Device>& gpu);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_MODEL_TIMING_H_
