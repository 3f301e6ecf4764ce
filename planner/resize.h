// Changes the number of replicas of a plan, for a run that goes on after it lost or gained one. The
// split of layers, depths and known times stay. Nothing is measured or searched. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// The number of stages of each replica of an assignment.
uint32_t StagesOfReplica(const Assignment& assignment);

// Bytes that a cell of `stage` needs on its device, and on a GPU of its host, where it is one of
// spec.replicas.count replicas.
struct CellMemory {
  uint64_t device = 0, host = 0;
};
CellMemory MemoryOfCell(const RunSpec& spec, const Assignment& assignment, uint32_t stage,
                        bool on_gpu);

// `spec` has the new number of replicas. `members` are the workers of the cells, replica by
// replica, stage by stage. Workers of the old plan keep their estimates; new ones get those of
// replica 0. The rates of new links are 0: not known. The caller sets epoch, first step and what
// was read. kFailedPrecondition where two neighbours have no way to each other.
StatusOr<Plan> ResizePlan(const Plan& plan, const RunSpec& spec,
                          const std::vector<CandidateWorker>& members);

}  // namespace longhaul::coordinator
