// What the exchange of a tied matrix costs. The first and the last stage of a tied model hold the
// same matrix, as embedding and as head, and send each other its gradient in every step. Pure.
#pragma once

#include "base/status.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

// The largest part of a step that this exchange may take where the run file does not say that the
// model is tied (model.tied: auto).
inline constexpr double kMostTiedShare = 0.1;

// Returns how many seconds of each step the exchange takes, alone on its lines, in its slower
// direction. 0: no two stages share a matrix.
double TiedSeconds(const Plan& plan);
// Checks the plan of a run that begins and leaves model.tied to the published model.
// kFailedPrecondition: the exchange takes more than kMostTiedShare of a step; the message says what
// to write.
Status CheckTiedCost(const PlanRequest& request, const Plan& plan);

}  // namespace longhaul::coordinator
