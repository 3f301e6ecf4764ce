// Whether what a cell computes is the same, bit for bit, when it is computed again.
//
// What decides the bits: the run file, the text, the cell's layers, roles, group and threads, the
// codecs of its edges, its devices, libraries and this program's version. What does not: who the
// worker is, transports, and how a stage orders its work (depth, lead), because sums over
// microbatches are in their order whatever the schedule.
#ifndef LONGHAUL_WORKER_RPC_NUMERICS_H_
#define LONGHAUL_WORKER_RPC_NUMERICS_H_

#include <cstdint>
#include <span>
#include <string>

#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::worker {

// This process's libraries, instruction sets and what its environment says to them. "": this
// system does not tell. Read once; thread-safe.
const std::string& Surroundings();

// v1::StepReport::numerics of the cell, which is of `assignment` and `spec`. `devices`: of its
// ranks, in order; `surroundings`: Surroundings(). 0, nothing is promised: a GPU without
// train.deterministic, whose sums are in any order; a replay, which computes nothing; surroundings
// that are not known.
uint64_t NumericsOf(const Assignment& assignment, const Cell& cell, const RunSpec& spec,
                    std::span<const v1::Device> devices, const std::string& surroundings);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_NUMERICS_H_
