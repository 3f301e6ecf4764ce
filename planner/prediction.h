// Predicts by simulation the step time of a plan on its network. Pure.
#pragma once

#include <stop_token>
#include <vector>

#include "base/status.h"
#include "planner/pipeline_cost.h"
#include "planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Returns the rates of a worker's interface: those that the user assumes, else measured ones. If
// the interface was not measured, the rate of its best link counts, because links of one interface
// share it.
InterfaceRates InterfaceOf(const PlanRequest& request, const CandidateWorker& worker);
// Returns the rates from one worker to another: measured ones; without a measurement those of the
// run file's topology; else estimates. The user's assumptions take their place; an assumed rate is
// that of interfaces, so the pair itself has no limit.
FlowRates RatesBetween(const PlanRequest& request, const CandidateWorker& from,
                       const CandidateWorker& to);
// Returns the network of an assignment. Its cells must be in the order of the request's workers.
NetworkRates NetworkFor(const PlanRequest& request, const Assignment& assignment);

// Sets plan->prediction: step, bound, bottleneck, and how each cell and edge spends its time.
// kCancelled once `stop` is requested, here and below.
Status AddPrediction(const RunSpec& spec, Plan* plan, const std::stop_token& stop = {});

// Adds to plan->prediction the steps with other codecs on all edges, each with its best order and
// with the maximum depth of the cells (`depths`). The rest of the plan does not change.
Status AddCodecTable(const PlanRequest& request, const std::vector<uint32_t>& depths,
                     const std::stop_token& stop, Plan* plan);

}  // namespace longhaul::coordinator
