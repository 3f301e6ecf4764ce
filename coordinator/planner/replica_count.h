// How many replicas a run has, where the run file leaves that to the plan. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_REPLICA_COUNT_H_
#define LONGHAUL_COORDINATOR_PLANNER_REPLICA_COUNT_H_

#include <stop_token>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// A step that is longer by this share than the shortest is as good, if it has fewer replicas.
inline constexpr double kReplicasTolerance = 0.01;

// Takes a request whose pipeline.replicas is auto: request.workers are candidates, of which the
// plan takes at most candidates_for. It tries each number of replicas that divides the step's
// microbatches and for which there are workers, with the stages that the run file asks for or,
// where that is auto, as many as there are workers for each replica (StageCount). All train the
// same microbatches in a step. The plan is the one of the fewest replicas whose step is within
// kReplicasTolerance of the shortest, and says what the others would do, or why they cannot
// (Prediction::replicas). Each number is tried (Effort::kTrial); those whose whole plan may be
// chosen after that are planned, best first, until no other could be. What is said of the others is
// of their trials. kFailedPrecondition with all reasons where none can be.
StatusOr<Plan> MakePlanOfBestReplicas(const PlanRequest& request, const std::stop_token& stop);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_REPLICA_COUNT_H_
