// Prints a plan for people.
#pragma once

#include "cli/terminal.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::cli {

// Prints stages and their ranks, links, where the predicted step's time goes, other codecs, and
// what bounds the step. `spec`: the run's.
void PrintPlan(const Terminal& terminal, const Plan& plan, const RunSpec& spec);

}  // namespace longhaul::cli
