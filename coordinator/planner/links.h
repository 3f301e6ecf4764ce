// The links of a plan: who dials, over what, with which codecs, and what these remember. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_LINKS_H_
#define LONGHAUL_COORDINATOR_PLANNER_LINKS_H_

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "longhaul/v1/plan.pb.h"

namespace longhaul::coordinator {

// One for each pair of neighbours. kFailedPrecondition where they cannot reach each other.
Status AddLinks(const PlanRequest& request, v1::Plan* plan);
// What the codecs of the plan's links remember, to its stages; kFailedPrecondition where that is
// not allowed.
Status AddMessages(const PlanRequest& request, v1::Plan* plan);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_LINKS_H_
