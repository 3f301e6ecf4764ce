// How many slices each microbatch has, where the run file leaves that to the plan.
#ifndef LONGHAUL_COORDINATOR_PLANNER_SLICES_H_
#define LONGHAUL_COORDINATOR_PLANNER_SLICES_H_

#include <stop_token>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Of a slice: with fewer, what a device does for each call counts, of which the plan knows nothing.
inline constexpr uint32_t kLeastSliceTokens = 64;
// A step that is longer by this share than the shortest is as good, if it has fewer slices.
inline constexpr double kSlicesTolerance = 0.01;

// The plan with the fewest slices whose predicted step is within kSlicesTolerance of the shortest,
// of powers of two that divide the context into slices of kLeastSliceTokens or more. It takes a
// slice's compute and codecs for an equal share of those of a microbatch, and says what the others
// would do, or why they cannot (Prediction::slices). Errors are those of microbatches whole.
StatusOr<Plan> MakePlanOfBestSlices(const PlanRequest& request, const std::stop_token& stop);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_SLICES_H_
