// Chooses which of a request's candidates a plan takes, and in which order. Pure.
#pragma once

#include <optional>
#include <stop_token>

#include "base/status.h"
#include "planner/placement.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

// A choice other than the first workers by name, in the order of their names, must make the step
// shorter by at least this share. Layer times and rates are not measured more exactly.
inline constexpr double kLeastGainOfPlacement = 0.05;

// Returns the candidates of a request, which must have `candidates_for`, as numbers for
// placement.h: layer times, memory, measured or estimated links, possible neighbours, and the bytes
// that replicas exchange. Errors: as of FlowFrom and ExchangeBytes.
StatusOr<PlacementProblem> ProblemOf(const PlanRequest& request);

// Takes a request with `candidates_for` set. Returns the request with that many workers in pipeline
// order, replica by replica, with their layers and a summary of the choice. The first workers by
// name are kept unless other workers are faster by kLeastGainOfPlacement. Workers are in the order
// of their names unless another order is faster by as much. If no choice is possible, the first
// workers by name are returned; planning them then fails and names the problem. kCancelled once
// `stop` is requested.
StatusOr<PlanRequest> PlaceWorkers(const PlanRequest& request, const std::stop_token& stop = {});

// Returns the same request without workers that share a GPU with others, as far as `candidates_for`
// allows. nullopt: all workers are needed, or none shares a GPU, or the run does not choose workers
// by speed. The search ignores that two stages on one GPU are slower, but a finished plan counts
// it. So MakePlan plans both requests and takes the faster plan.
std::optional<PlanRequest> WithFewSharers(const PlanRequest& request);

// True if `stages` of the candidates can form a chain in which neighbours can reach each other, as
// far as is known. Also true if the answer would take too long to compute.
bool MayBePlaced(const RunSpec& spec, const std::vector<CandidateWorker>& candidates,
                 uint32_t stages);

}  // namespace longhaul::coordinator
