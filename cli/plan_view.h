// Prints a plan for people.
#pragma once

#include "cli/terminal.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::cli {

// Prints the stages and their ranks, the links, and the predictions: how each stage spends a step,
// how long a step would take with other codecs, and the shortest possible step. `plan` is a plan
// for `spec`.
void PrintPlan(const Terminal& terminal, const Plan& plan, const RunSpec& spec);

}  // namespace longhaul::cli
