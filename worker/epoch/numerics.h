// Fingerprints everything that decides the bits a cell computes: equal fingerprints promise equal
// bits.
//
// Included: the run file, the text, the cell's layers, roles, group and threads, its edges' codecs,
// its devices, the libraries and the version of this program. Excluded: the worker's identity,
// transports, and how a stage orders its work (microbatches in flight, lead), because sums over
// microbatches are in microbatch order under any schedule.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::worker {

// Describes this process's libraries, instruction sets and their environment variables. "": unknown
// on this system. Read once; thread-safe.
const std::string& Surroundings();

// Returns v1::StepReport::numerics of a cell. `devices`: those of its ranks, in order.
// `surroundings`: Surroundings(). 0 promises nothing: a GPU without train.deterministic, whose sums
// have no fixed order; a replay, which computes nothing; or unknown surroundings.
uint64_t NumericsOf(const Assignment& assignment, const Cell& cell, const RunSpec& spec,
                    std::span<const v1::Device> devices, const std::string& surroundings);

}  // namespace longhaul::worker
