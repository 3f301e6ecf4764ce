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
// that replicas exchange. Errors: as of FlowFrom (links.h) and ExchangeBytes (replicas.h).
StatusOr<PlacementProblem> ProblemOf(const PlanRequest& request);

// Takes a request with `candidates_for` set and with `workers` in the order of their names. Returns
// the request with candidates_for workers in pipeline order, replica by replica, with their layers
// and a summary of the choice (PlanRequest::placement); candidates_for is then nullopt.
//
// Keeps the first workers by name unless other workers are faster by kLeastGainOfPlacement, and the
// order of names unless another order is faster by as much. If only_measured leaves no possible
// choice, estimated links count too. If no choice is possible at all, returns the first workers by
// name without a summary; planning them then fails and names the problem. kCancelled once `stop` is
// requested; other errors as of ProblemOf.
StatusOr<PlanRequest> PlaceWorkers(const PlanRequest& request, const std::stop_token& stop = {});

// Takes a request with `candidates_for` set. Returns the same request without workers that share a
// GPU with others, as far as `candidates_for` allows. nullopt: all workers are needed, or none
// shares a GPU, or the run does not choose workers by speed (placement: names, or a replay).
// PlaceWorkers ignores that two stages on one GPU are slower, but a finished plan counts this. So
// MakePlan plans both requests and takes the faster plan.
std::optional<PlanRequest> WithFewSharers(const PlanRequest& request);

// True if `stages` of the candidates can form a chain in which neighbours can reach each other, as
// far as is known. Also true if the answer would take too long to compute.
bool MayBePlaced(const RunSpec& spec, const std::vector<CandidateWorker>& candidates,
                 uint32_t stages);

}  // namespace longhaul::coordinator
