// The plan of a run that goes on with another number of replicas, made of the plan that there is:
// the split of layers, depths and what is known of times stay. Nothing is measured or searched.
// Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_RESIZE_H_
#define LONGHAUL_COORDINATOR_PLANNER_RESIZE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// How many stages each replica of an assignment has.
uint32_t StagesOfReplica(const Assignment& assignment);

// What a cell of `stage` needs of its device, and on a GPU of its host, where it is one of
// spec.replicas.count replicas.
struct CellMemory {
  uint64_t device = 0, host = 0;
};
CellMemory MemoryOfCell(const RunSpec& spec, const Assignment& assignment, uint32_t stage,
                        bool on_gpu);

// `spec`: with the new number of replicas. `members`: who has the cells, replica by replica, stage
// by stage; those of the plan's own workers keep what is known of them, others are taken to be as
// replica 0's. The rates of a link that the plan did not have are 0: not known. Epoch, first step
// and what was read are the caller's. kFailedPrecondition where two neighbours have no way to each
// other.
StatusOr<Plan> ResizePlan(const Plan& plan, const RunSpec& spec,
                          const std::vector<CandidateWorker>& members);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_RESIZE_H_
