// How deep a plan's stages run and in which order its data leave, chosen by the simulator. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_ORDER_H_
#define LONGHAUL_COORDINATOR_PLANNER_ORDER_H_

#include "base/status.h"
#include "longhaul/v1/plan.pb.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Every rate on the way of the plan's data is known: of interfaces, or of the pairs themselves.
bool RatesAreKnown(const v1::Plan& plan);

// Takes a plan whose stages have the most depth that they can hold and whose network is set, gives
// them depth and activation_lead with a sentence each that says why, and the prediction what
// unlimited depths would do. Depths do also where messages are schedule::kUnforeseenDelay longer
// under way than is known, and links schedule::kUnforeseenRate as fast. Where rates are not known
// nothing speaks for less depth. kFailedPrecondition where the run file's order needs more depth
// than there is.
Status ChooseOrder(const RunSpec& spec, v1::Plan* plan);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_ORDER_H_
