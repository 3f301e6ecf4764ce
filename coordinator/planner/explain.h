// The paragraph that `longhaul plan` prints. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_EXPLAIN_H_
#define LONGHAUL_COORDINATOR_PLANNER_EXPLAIN_H_

#include <string>

#include "coordinator/planner/planner.h"

namespace longhaul::coordinator {

std::string Explain(const PlanRequest& request, const Plan& plan);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_EXPLAIN_H_
