// Which of a request's candidates a plan takes, and in which order. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_PLACE_WORKERS_H_
#define LONGHAUL_COORDINATOR_PLANNER_PLACE_WORKERS_H_

#include <optional>
#include <stop_token>

#include "base/status.h"
#include "coordinator/planner/placement.h"
#include "coordinator/planner/planner.h"

namespace longhaul::coordinator {

// What gains less over the order of names is not worth it: layer times and rates are not measured
// any better.
inline constexpr double kLeastGainOfPlacement = 0.05;

// What placement.h needs to know of the candidates: layers as they were timed, memory, links as
// measured or estimated, who may talk to whom, what replicas exchange. kFailedPrecondition where a
// codec of the run file is none.
StatusOr<PlacementProblem> ProblemOf(const PlanRequest& request);

// A request whose `candidates_for` is set becomes one of so many workers in pipeline order, replica
// by replica, with their layers and a summary of the choice. The first by name in the order of
// their names stay unless others are faster by kLeastGainOfPlacement, and others stand in the order
// of theirs unless another order is. Where nothing works the first by name stay, too: the plan then
// says what is wrong with them.
StatusOr<PlanRequest> PlaceWorkers(const PlanRequest& request, const std::stop_token& stop = {});

// The same request without workers whose GPU others have, as far as `candidates_for` can do without
// them; nullopt: all are needed, or none shares one. A search does not see what a second stage on a
// GPU costs; the plan of what it chose does.
std::optional<PlanRequest> WithFewSharers(const PlanRequest& request);

// Whether so many of the candidates, in some order, can talk to their neighbours, as far as is
// known. True also where that takes too long to find out.
bool MayBePlaced(const RunSpec& spec, const std::vector<CandidateWorker>& candidates,
                 uint32_t stages);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_PLACE_WORKERS_H_
