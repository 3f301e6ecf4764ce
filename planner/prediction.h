// Predicts by simulation the step time of a plan on its network. Pure.
#pragma once

#include <stop_token>
#include <vector>

#include "base/status.h"
#include "planner/pipeline_cost.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Returns the rates of a worker's interface: the user's assumed rate, else measured ones. If the
// interface was not measured, the rate of its best measured link counts, because the links of an
// interface share its rate. schedule::kUnlimited: unknown.
InterfaceRates InterfaceOf(const PlanRequest& request, const CandidateWorker& worker);
// Returns the rates from one worker to another: measured ones; without a measurement those of the
// run file's topology; else estimates. A rate or delay that the user assumes replaces them. An
// assumed rate limits interfaces, so the pair itself then has no limit.
FlowRates RatesBetween(const PlanRequest& request, const CandidateWorker& from,
                       const CandidateWorker& to);
// Returns the network of an assignment, whose cells must be in the order of the request's workers.
// Edges over the same relay share the rate of its line equally.
NetworkRates NetworkFor(const PlanRequest& request, const Assignment& assignment);

// Sets plan->prediction: step, bound, bottleneck, and how each cell and edge spends its time. The
// plan must have one replica, and its network must be set. kCancelled once `stop` is requested,
// here and below.
Status AddPrediction(const RunSpec& spec, Plan* plan, const std::stop_token& stop = {});

// Adds to plan->prediction how long a step would take with other codecs on all edges. Each pair of
// codecs gets its best order of data and its best depths. `depths` has the maximum depth of each
// cell. The rest of the plan does not change. Adds nothing for a plan of one stage. Other errors:
// as of AddEdges (links.h) and ChooseOrder (order.h).
Status AddCodecTable(const PlanRequest& request, const std::vector<uint32_t>& depths,
                     const std::stop_token& stop, Plan* plan);

}  // namespace longhaul::coordinator
