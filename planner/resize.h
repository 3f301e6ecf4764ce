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

// Bytes that a cell of `stage` needs on its device and, if that is a GPU, on its host, in a run
// with spec.replicas.count replicas.
struct CellMemory {
  uint64_t device = 0, host = 0;
};
CellMemory MemoryOfCell(const RunSpec& spec, const Assignment& assignment, uint32_t stage,
                        bool on_gpu);

// Returns the plan for the number of replicas in `spec`. `members` are the workers of its cells,
// replica by replica, stage by stage. A worker that held the same stage before keeps its estimates;
// any other gets the estimates of replica 0's worker at that stage. The rates of new links are 0:
// unknown. The caller sets epoch, first step and the microbatches read. kFailedPrecondition if two
// workers that share a link cannot reach each other.
StatusOr<Plan> ResizePlan(const Plan& plan, const RunSpec& spec,
                          const std::vector<CandidateWorker>& members);

}  // namespace longhaul::coordinator
