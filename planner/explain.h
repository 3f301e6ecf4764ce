// Writes the paragraph that `longhaul plan` prints. Pure.
#pragma once

#include <span>
#include <string>

#include "planner/planner.h"

namespace longhaul::coordinator {

// Returns the paragraph about the plan of one replica. If the run has several replicas, leaves out
// layers, placement, shared GPUs and the step, because MakePlanOfReplicas (replicas.h) writes a
// paragraph about these for all replicas.
std::string Explain(const PlanRequest& request, const Plan& plan);

// Returns a sentence, with a space before it, that names the workers that share a GPU. Empty if no
// two workers share one.
std::string SharedText(const RunSpec& spec, std::span<const CandidateWorker> workers);
// Returns a sentence, with a space before it, about how the workers and their order were chosen
// (PlanRequest::placement), and how long a step of other choices would take. Empty if there was no
// choice.
std::string PlacedText(const PlanRequest& request, const Plan& plan);

}  // namespace longhaul::coordinator
