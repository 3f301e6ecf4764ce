// Local search for replicas, from many starts, and search of all of them one by one. Pure; private
// to placement*.cc.
#ifndef LONGHAUL_COORDINATOR_PLANNER_PLACEMENT_SEARCH_H_
#define LONGHAUL_COORDINATOR_PLANNER_PLACEMENT_SEARCH_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "coordinator/planner/chain_bound.h"
#include "coordinator/planner/placement.h"

namespace longhaul::coordinator {

struct RankedReplicas {
  PlacedReplicas replicas;
  double bound = 0;
};

struct SearchResult {
  std::vector<RankedReplicas> best;  // different ones, the best first; empty: none fits
  uint64_t moves = 0;
  uint32_t descents = 0;
};

// Descents of a local search by the bound (placement_descent.h). A descent from a local optimum
// that was changed at random follows the one before; without success for long the search begins
// anew elsewhere. A trial begins with several greedy starts instead, and stays with the best of
// them. kCancelled once options.stop is requested.
StatusOr<SearchResult> SearchReplicas(const PlacementProblem& problem, const ChainBound& bound,
                                      const ExchangeBound& exchange,
                                      const PlacementOptions& options);

// Replicas with all their splits: how many there are, however replicas are numbered.
double WaysToPlace(const PlacementProblem& problem);

// Branch and bound: replicas whose bound is below the best simulated step so far are simulated.
// `result` holds the best known and gets a better one where there is one. False: the budget of work
// was not enough, and a better one may exist.
StatusOr<bool> SearchAllReplicas(const PlacementProblem& problem, const ChainBound& bound,
                                 const ExchangeBound& exchange, const PlacementOptions& options,
                                 Placement* result);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_PLACEMENT_SEARCH_H_
