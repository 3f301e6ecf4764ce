// Changes the number of replicas of a plan, for a run that continues after it lost or gained one.
// Keeps the split of layers, depths and known times. Measures and searches nothing. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// The number of stages of each replica of an assignment.
uint32_t StagesOfReplica(const Assignment& assignment);

// Bytes that a cell of `stage` needs in a run with spec.replicas.count replicas. `host`: memory of
// a GPU's host; 0 on a CPU. The assignment's replica 0 gives layers and depth.
struct CellMemory {
  uint64_t device = 0, host = 0;
};
CellMemory MemoryOfCell(const RunSpec& spec, const Assignment& assignment, uint32_t stage,
                        bool on_gpu);

// Returns the plan for the number of replicas in `spec`. `members` are the workers of its cells,
// replica by replica, stage by stage; aborts if their number is wrong. A worker that held the same
// stage before keeps its estimates; any other worker gets the estimates of replica 0's worker at
// the stage. The rates of new links are 0: unknown. The caller sets epoch, start_step and
// microbatches_before of the assignment. kFailedPrecondition if two workers that share a link
// cannot reach each other.
StatusOr<Plan> ResizePlan(const Plan& plan, const RunSpec& spec,
                          const std::vector<CandidateWorker>& members);

}  // namespace longhaul::coordinator
