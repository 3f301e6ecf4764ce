// The paragraph that `longhaul plan` prints. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_EXPLAIN_H_
#define LONGHAUL_COORDINATOR_PLANNER_EXPLAIN_H_

#include <span>
#include <string>

#include "coordinator/planner/planner.h"

namespace longhaul::coordinator {

// Of one of several replicas what is left when those, their placement and their step are described.
std::string Explain(const PlanRequest& request, const Plan& plan);

// Which workers share a device; "" where none do. With a space before it.
std::string SharedText(const RunSpec& spec, std::span<const CandidateWorker> workers);
// Among how many workers was chosen, and what others would take; "" where nothing was. With a space
// before it.
std::string PlacedText(const PlanRequest& request, const Plan& plan);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_EXPLAIN_H_
