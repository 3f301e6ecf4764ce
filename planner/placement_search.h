// The two searches for a placement: local search from many starts, and branch and bound. Pure;
// private to placement*.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "planner/chain_bound.h"
#include "planner/placement.h"

namespace longhaul::coordinator {

struct RankedReplicas {
  PlacedReplicas replicas;
  double bound = 0;  // seconds (BoundOf)
};

struct SearchResult {
  std::vector<RankedReplicas> best;  // distinct, the best first; empty: none is possible
  uint64_t moves = 0;                // as in Placement
  uint32_t descents = 0;
};

// Iterated local search by the bound (placement_descent.h). Each descent begins at an earlier local
// optimum, changed at random; after many descents without success the search begins anew elsewhere.
// With options.trial it first descends from several greedy starts and from changes of the best
// result. kCancelled once options.stop is requested.
StatusOr<SearchResult> SearchReplicas(const PlacementProblem& problem, const ChainBound& bound,
                                      const ExchangeBound& exchange,
                                      const PlacementOptions& options);

// The number of possible placements: orders of workers times divisions of the layers. Orders of the
// same replicas count once.
double WaysToPlace(const PlacementProblem& problem);

// Branch and bound: simulates placements whose bound is below the best simulated step so far.
// `result` holds the best known placement and is replaced by a better one. True: no other placement
// is better. False: options.most_work was too small, and a better placement may exist.
// kCancelled once options.stop is requested.
StatusOr<bool> SearchAllReplicas(const PlacementProblem& problem, const ChainBound& bound,
                                 const ExchangeBound& exchange, const PlacementOptions& options,
                                 Placement* result);

}  // namespace longhaul::coordinator
