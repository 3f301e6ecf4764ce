// The paragraph that `longhaul plan` prints. Pure.
#pragma once

#include <span>
#include <string>

#include "planner/planner.h"

namespace longhaul::coordinator {

// For one of several replicas: only what the paragraph on the replicas, their placement and their
// step leaves to say.
std::string Explain(const PlanRequest& request, const Plan& plan);

// A sentence on workers that share a device, with a space before it; empty where none do.
std::string SharedText(const RunSpec& spec, std::span<const CandidateWorker> workers);
// A sentence on the choice of workers and what other choices would take, with a space before it;
// empty where nothing was chosen.
std::string PlacedText(const PlanRequest& request, const Plan& plan);

}  // namespace longhaul::coordinator
