// A plan as text.
#ifndef LONGHAUL_COORDINATOR_CLI_PLAN_VIEW_H_
#define LONGHAUL_COORDINATOR_CLI_PLAN_VIEW_H_

#include <cstdint>

#include "coordinator/cli/terminal.h"
#include "run/plan/plan.h"

namespace longhaul::cli {

// Stages, links, where the predicted step's time goes, other codecs, and what bounds the step.
void PrintPlan(const Terminal& terminal, const Plan& plan, uint64_t tokens_per_step);

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_PLAN_VIEW_H_
