// Prints a plan for people.
#pragma once

#include "cli/terminal.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::cli {

// Prints stages and their ranks, links, how the predicted step spends its time, other codecs, and
// the limit of the step. `spec`: the run's.
void PrintPlan(const Terminal& terminal, const Plan& plan, const RunSpec& spec);

}  // namespace longhaul::cli
