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

// Bytes that a cell of `stage` needs on its device, and on a GPU of its host, if it is one of
// spec.replicas.count replicas.
struct CellMemory {
  uint64_t device = 0, host = 0;
};
CellMemory MemoryOfCell(const RunSpec& spec, const Assignment& assignment, uint32_t stage,
                        bool on_gpu);

// `spec` has the new number of replicas. `members` are the workers of the cells, replica by
// replica, stage by stage. Workers of the old plan keep their estimates; new ones get those of
// replica 0. The rates of new links are 0: unknown. The caller sets epoch, first step and the
// microbatches read. kFailedPrecondition if two neighbours cannot reach each other.
StatusOr<Plan> ResizePlan(const Plan& plan, const RunSpec& spec,
                          const std::vector<CandidateWorker>& members);

}  // namespace longhaul::coordinator
