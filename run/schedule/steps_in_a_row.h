// Simulates a step that overlaps with others: simulates several steps in a row as one long step,
// and takes the time that the last of them add.
#pragma once

#include <cstdint>
#include <stop_token>

#include "base/status.h"
#include "run/schedule/cost.h"
#include "run/schedule/simulation.h"

namespace longhaul::schedule {

// The first steps fill the pipeline; the mean of the counted ones is the time of a step.
inline constexpr uint32_t kStepsToFill = 2, kCountedSteps = 2;

// `cost` must be one that Simulate() accepts (simulator.h), with a schedule that overlaps steps.
StatusOr<Simulation> SimulateInARow(const PipelineCost& cost, const std::stop_token& stop);

}  // namespace longhaul::schedule
