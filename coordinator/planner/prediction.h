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

// What was measured of the workers' interfaces and links, or is assumed in its place. Where an
// interface was not measured, the best of its links counts: links of one interface share it,
// whatever each could do alone. Links that were not measured are as the run file's topology says.
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
