// A step among others that it overlaps with, simulated: some steps in a row as one long one, and
// what the last of them add to it.
#ifndef LONGHAUL_RUN_SCHEDULE_STEPS_IN_A_ROW_H_
#define LONGHAUL_RUN_SCHEDULE_STEPS_IN_A_ROW_H_

#include <stop_token>

#include "base/status.h"
#include "run/schedule/simulator.h"

namespace longhaul::schedule {

// Simulate() of a cost whose schedule overlaps steps. `cost` is one that Simulate() accepts.
StatusOr<Simulation> SimulateInARow(const PipelineCost& cost, const std::stop_token& stop);

}  // namespace longhaul::schedule

#endif  // LONGHAUL_RUN_SCHEDULE_STEPS_IN_A_ROW_H_
