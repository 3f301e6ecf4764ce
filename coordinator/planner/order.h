// How deep a plan's stages run and in which order its data leave, chosen by the simulator. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_ORDER_H_
#define LONGHAUL_COORDINATOR_PLANNER_ORDER_H_

#include <stop_token>

#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Every rate on the way of activations is known: of interfaces, or of the pairs themselves.
bool RatesAreKnown(const Plan& plan);

// Takes a plan whose cells have the most depth that they can hold and whose network is set. Gives
// the cells depth and activation_lead with a sentence each that says why. Gives the prediction what
// unlimited depths would do, and a sentence where the search for depths left something out.
// Depths keep a margin: messages may take schedule::kUnforeseenDelay longer than is known, and
// links may be schedule::kUnforeseenRate as fast. Where rates are not known nothing speaks for less
// depth. kFailedPrecondition where the run file's order needs more depth than there is; kCancelled
// once `stop` is requested.
// A trial keeps all depth.
Status ChooseOrder(const RunSpec& spec, Plan* plan, const std::stop_token& stop = {},
                   Effort effort = Effort::kWhole);

// Of a replica beside a slower one with as many stages, which has its order already: the same
// depths, as far as its cells hold them, and the same leads. Its step must then be no longer than
// that one's, or than all depth would make it but for schedule::kDepthTolerance, also with what
// depths keep a margin for. Else as ChooseOrder.
Status ChooseOrderLike(const RunSpec& spec, const Plan& slower, Plan* plan,
                       const std::stop_token& stop = {});

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_ORDER_H_
