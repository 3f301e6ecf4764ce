// A step that overlaps with others, simulated: some steps in a row as one long step, and what the
// last of them add to it.
#pragma once

#include <cstdint>
#include <stop_token>

#include "base/status.h"
#include "run/schedule/cost.h"
#include "run/schedule/simulation.h"

namespace longhaul::schedule {

// The first steps fill the pipeline; the mean of the counted ones is the time of a step.
inline constexpr uint32_t kStepsToFill = 2, kCountedSteps = 2;

// `cost` is one that Simulate() accepts (simulator.h), and its schedule overlaps steps.
StatusOr<Simulation> SimulateInARow(const PipelineCost& cost, const std::stop_token& stop);

}  // namespace longhaul::schedule
