// What stages take that share a GPU. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_SHARING_H_
#define LONGHAUL_COORDINATOR_PLANNER_SHARING_H_

#include <stop_token>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Makes the compute of such cells slower. Their layers were timed one worker at a time. While a
// stage computes, others on its GPU do so for the share of the step that they are busy, and all get
// equal parts of it; how busy they are follows from a simulation of the slower stages. Plans of
// replays stay as they are: nobody computes. Takes a plan whose network is set. kCancelled once
// `stop` is requested.
Status SlowDownSharedDevices(const PlanRequest& request, const std::stop_token& stop, Plan* plan);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_SHARING_H_
