// Writes the paragraph that `longhaul plan` prints. Pure.
#pragma once

#include <span>
#include <string>

#include "planner/planner.h"

namespace longhaul::coordinator {

// Returns the paragraph on a plan. For the plan of one of several replicas, leaves out what another
// paragraph says: the replicas, their placement and their step.
std::string Explain(const PlanRequest& request, const Plan& plan);

// Returns a sentence on workers that share a device, with a space before it; empty if none do.
std::string SharedText(const RunSpec& spec, std::span<const CandidateWorker> workers);
// Returns a sentence on the choice of workers and the steps of other choices, with a space before
// it; empty if there was no choice.
std::string PlacedText(const PlanRequest& request, const Plan& plan);

}  // namespace longhaul::coordinator
