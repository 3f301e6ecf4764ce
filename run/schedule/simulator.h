// Predicts the time of a step, and says where it goes. Pure and deterministic. one_step.h says what
// is modelled, steps_in_a_row.h how steps that overlap are.
#pragma once

#include <stop_token>

#include "base/status.h"
#include "run/schedule/cost.h"
#include "run/schedule/simulation.h"

namespace longhaul::schedule {

// kInvalidArgument for an instance that makes no sense (no stages, negative times, sizes differ);
// kCancelled within milliseconds once `stop` is requested: 64 stages with 65,536 microbatches take
// minutes.
StatusOr<Simulation> Simulate(const PipelineCost& cost, const std::stop_token& stop = {});

}  // namespace longhaul::schedule
