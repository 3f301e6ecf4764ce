// Computes a fingerprint (a hash) of everything that decides the bits of the results of a cell (a
// stage of one replica). If two attempts at a run have equal fingerprints, their results are equal
// to the last bit.
//
// The fingerprint includes the run file, the text, the cell's layers, roles, group and threads, the
// codecs of the cell's edges, the cell's devices, the libraries and the version of this program.
// Beyond what the run file says, the fingerprint does not include the worker's identity, the
// transports, or the order of the stage's work, because gradients are summed in microbatch order
// under any schedule.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::worker {

// Describes the libraries that this process computes with, their environment variables and the
// CPU's instruction sets. Empty: unknown on this system. Read once, at the first call. Thread-safe.
const std::string& Surroundings();

// Returns the fingerprint of a cell, for v1::StepReport::numerics. `devices`: the devices of its
// ranks, in order, at least one. `surroundings`: Surroundings(). Returns 0 (no promise) in three
// cases: sums may have no fixed order (a GPU without train.deterministic, or more than two ranks on
// GPUs); the run is a replay, which computes nothing; or the surroundings are unknown.
uint64_t NumericsOf(const Assignment& assignment, const Cell& cell, const RunSpec& spec,
                    std::span<const v1::Device> devices, const std::string& surroundings);

}  // namespace longhaul::worker
