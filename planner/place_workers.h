// Chooses which of a request's candidates a plan takes, and in which order. Pure.
#pragma once

#include <optional>
#include <stop_token>

#include "base/status.h"
#include "planner/placement.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

// Another choice must make the step shorter than the order of names by at least this share, because
// layer times and rates are not measured more exactly.
inline constexpr double kLeastGainOfPlacement = 0.05;

// Returns the candidates of a request as numbers for placement.h: layer times, memory, measured or
// estimated links, possible neighbours, and the bytes that replicas exchange. Errors: those of
// FlowFrom and ExchangeBytes.
StatusOr<PlacementProblem> ProblemOf(const PlanRequest& request);

// Takes a request with `candidates_for` set. Returns the request with that many workers in pipeline
// order, replica by replica, with their layers and a summary of the choice. The first workers by
// name, in the order of their names, are kept unless another choice is faster by
// kLeastGainOfPlacement; chosen workers stay in the order of their names unless another order is
// faster by as much. The first by name are also kept if no choice works: the plan then names the
// problem.
StatusOr<PlanRequest> PlaceWorkers(const PlanRequest& request, const std::stop_token& stop = {});

// Returns the same request without workers that share a GPU with others, as far as `candidates_for`
// allows. nullopt: all are needed, or none shares one, or the run does not choose workers by speed.
// The search does not count the cost of a second stage on a GPU, but the plan of its result does;
// so both requests are planned and compared.
std::optional<PlanRequest> WithFewSharers(const PlanRequest& request);

// True if `stages` of the candidates can form a chain in which neighbours can reach each other, as
// far as is known. Also true if the answer would take too long to compute.
bool MayBePlaced(const RunSpec& spec, const std::vector<CandidateWorker>& candidates,
                 uint32_t stages);

}  // namespace longhaul::coordinator
