// Simulates a step of a schedule whose steps overlap. For this it simulates a few steps, and then
// a few more, each time as one long step. The difference is the time of the additional steps.
#pragma once

#include <cstdint>
#include <stop_token>

#include "base/status.h"
#include "run/schedule/cost.h"
#include "run/schedule/simulation.h"

namespace longhaul::schedule {

// The first simulation has kStepsToFill steps, the second kCountedSteps more. The time of a step is
// their difference / kCountedSteps, but at least the lower bound of a step (bound.h).
inline constexpr uint32_t kStepsToFill = 2, kCountedSteps = 2;

// Returns one step after the pipeline has filled: times and shares are per step. `cost` must be one
// that Simulate() accepts (simulator.h), with a schedule that overlaps steps. kCancelled once
// `stop` is requested.
StatusOr<Simulation> SimulateInARow(const PipelineCost& cost, const std::stop_token& stop);

}  // namespace longhaul::schedule
