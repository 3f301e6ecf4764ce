// How many ranks share each stage, and into how many parts they divide experts, where the run file
// leaves that to the plan. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_RANKS_H_
#define LONGHAUL_COORDINATOR_PLANNER_RANKS_H_

#include <stop_token>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// The plan whose predicted step is the shortest, of those for each group that is left open
// (config::GroupsLeftOpen) and that all workers have devices for; of equal ones that of the fewest
// ranks, then of the fewest parts. It says what the others would do, or why they cannot
// (Prediction::ranks). kFailedPrecondition with all reasons where none can.
StatusOr<Plan> MakePlanOfBestGroup(const PlanRequest& request, const std::stop_token& stop);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_RANKS_H_
