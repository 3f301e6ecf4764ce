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

namespace longhaul::codec::python {
class Host;  // host.h
}

namespace longhaul::worker {

// Measures on the first of `devices`, which must not be empty. If the run file asks for a group of
// ranks, also measures the group on as many devices of the same kind. If the run file leaves the
// group open (config::GroupsLeftOpen), measures every possible group.
//
// Blocks. First waits for its turn on each shared GPU (device_turn.h), at most 60 s for a GPU. Then
// each measurement takes a second or two. In a replay, layer times come from the run file.
//
// `vocabulary`: number of token ids. `make_group` makes the stage of a group. `python_codecs`: as
// in Resources (worker/epoch/resources.h). kResourceExhausted: a device has too little memory for a
// few layers of the model. Other errors: those of stages and codecs.
StatusOr<v1::LayerTimes> MeasureModel(const RunSpec& spec, uint32_t vocabulary,
                                      std::span<const WorkerDevice> devices,
                                      const MakeStage& make_group,
                                      const codec::python::Host* python_codecs = nullptr);

}  // namespace longhaul::worker
