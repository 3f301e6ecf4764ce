// Fingerprints everything that decides the bits that a cell (a stage of one replica) computes. If
// two attempts at a run have equal fingerprints, their results are equal to the last bit.
//
// The fingerprint includes the run file, the text, the cell's layers, roles, group and threads, the
// codecs of its edges, its devices, the libraries and the version of this program. It does not
// include the worker's identity, the transports, and how the stage orders its work: gradients are
// summed in microbatch order under any schedule.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::worker {

// Describes the libraries that this process computes with, their environment variables and the
// CPU's instruction sets. "": unknown on this system. Read once; thread-safe.
const std::string& Surroundings();

// Returns the fingerprint of a cell, for v1::StepReport::numerics. `devices`: the devices of its
// ranks, in order. `surroundings`: Surroundings(). Returns 0, which promises nothing, if sums may
// have no fixed order (a GPU without train.deterministic, or more than two ranks on GPUs), for a
// replay, which computes nothing, and if the surroundings are unknown.
uint64_t NumericsOf(const Assignment& assignment, const Cell& cell, const RunSpec& spec,
                    std::span<const v1::Device> devices, const std::string& surroundings);

}  // namespace longhaul::worker
