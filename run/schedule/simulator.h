// Predicts the time of a step and how stages and links spend it. Pure and deterministic. one_step.h
// describes the model, steps_in_a_row.h the model of overlapping steps.
#pragma once

#include <stop_token>

#include "base/status.h"
#include "run/schedule/cost.h"
#include "run/schedule/simulation.h"

namespace longhaul::schedule {

// Simulates a step. kInvalidArgument for an invalid input (no stages, negative times, sizes that
// differ). kCancelled within milliseconds once `stop` is requested: 64 stages with 65,536
// microbatches take minutes.
StatusOr<Simulation> Simulate(const PipelineCost& cost, const std::stop_token& stop = {});

}  // namespace longhaul::schedule
