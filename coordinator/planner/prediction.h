// What a plan's run will take on its network, by the simulator. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_PREDICTION_H_
#define LONGHAUL_COORDINATOR_PLANNER_PREDICTION_H_

#include <stop_token>
#include <vector>

#include "base/status.h"
#include "coordinator/planner/pipeline_cost.h"
#include "coordinator/planner/planner.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// What was measured of a worker's interface, or is assumed in its place. Where it was not measured,
// the best of its links counts: links of one interface share it, whatever each could do alone.
InterfaceRates InterfaceOf(const PlanRequest& request, const CandidateWorker& worker);
// Likewise from one worker to another. Without a measurement as the run file's topology says.
FlowRates RatesBetween(const PlanRequest& request, const CandidateWorker& from,
                       const CandidateWorker& to);
// Both, of the workers of an assignment, which stand in the request as in the pipeline.
NetworkRates NetworkFor(const PlanRequest& request, const Assignment& assignment);

// Step, bound, bottleneck, and where each cell's and edge's time goes, to plan->prediction.
// kCancelled once `stop` is requested, here and below.
Status AddPrediction(const RunSpec& spec, Plan* plan, const std::stop_token& stop = {});

// The same for other codecs in all edges of the plan, which stays as it is: with the best order for
// each and the most depth that cells can hold (`depths`).
Status AddCodecTable(const PlanRequest& request, const std::vector<uint32_t>& depths,
                     const std::stop_token& stop, Plan* plan);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_PREDICTION_H_
