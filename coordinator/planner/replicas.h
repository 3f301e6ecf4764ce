// Plans of runs with several replicas of the pipeline: each is planned as a run of its own, all
// with the same split, and what replicas send each other is added. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_REPLICAS_H_
#define LONGHAUL_COORDINATOR_PLANNER_REPLICAS_H_

#include <cstdint>
#include <stop_token>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"
#include "transport/replicas/layout.h"

namespace longhaul::coordinator {

// MakePlan's, for spec.replicas.count above 1. Its workers stand as cells do: replica by replica,
// stage by stage.
StatusOr<Plan> MakePlanOfReplicas(const PlanRequest& request, const std::stop_token& stop);

// What the cell's replicas exchange, and in which parts.
StatusOr<replicas::Layout> LayoutOf(const RunSpec& spec, uint32_t vocabulary, const Cell& cell);

// How many replicas an assignment has.
uint32_t ReplicasOf(const Assignment& assignment);

// How long one exchange of gradients and parameters takes after the passes of a step, at the rates
// that the plan's edges and cells have. One replica exchanges nothing: 0.
double ExchangeSeconds(const Plan& plan);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_REPLICAS_H_
