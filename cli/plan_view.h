// Prints a plan for people.
#pragma once

#include "cli/terminal.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::cli {

// Prints the stages and their ranks, the links, and what is predicted: how each stage spends a
// step, how other codecs would do, and the lower bound of a step. `spec` is the run's.
void PrintPlan(const Terminal& terminal, const Plan& plan, const RunSpec& spec);

}  // namespace longhaul::cli
