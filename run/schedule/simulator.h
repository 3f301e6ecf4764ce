// Predicts the time of a step and how stages and links spend it. Pure and deterministic. The model
// is described in one_step.h, and for schedules whose steps overlap in steps_in_a_row.h.
#pragma once

#include <stop_token>

#include "base/status.h"
#include "run/schedule/cost.h"
#include "run/schedule/simulation.h"

namespace longhaul::schedule {

// Simulates a step. kInvalidArgument: `cost` is invalid (no stages, negative times, sizes that do
// not match). kCancelled within milliseconds once `stop` is requested. 64 stages with 65,536
// microbatches take minutes.
StatusOr<Simulation> Simulate(const PipelineCost& cost, const std::stop_token& stop = {});

}  // namespace longhaul::schedule
