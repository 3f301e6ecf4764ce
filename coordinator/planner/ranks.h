// How many ranks share each stage, where the run file leaves that to the plan. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_RANKS_H_
#define LONGHAUL_COORDINATOR_PLANNER_RANKS_H_

#include <stop_token>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// The plan whose predicted step is the shortest, of those for each number of ranks from one on that
// all workers have devices for; of equal ones that of the fewest ranks. It says what the others
// would do, or why they cannot (Prediction::ranks). kFailedPrecondition with all reasons where none
// can.
StatusOr<Plan> MakePlanOfBestRanks(const PlanRequest& request, const std::stop_token& stop);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_RANKS_H_
