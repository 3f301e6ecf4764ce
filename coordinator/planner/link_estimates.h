// What is not measured between workers, estimated from what is. Pure.
#ifndef LONGHAUL_COORDINATOR_PLANNER_LINK_ESTIMATES_H_
#define LONGHAUL_COORDINATOR_PLANNER_LINK_ESTIMATES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/planner/planner.h"

namespace longhaul::coordinator {

// Two workers whose round trip is no longer are in one region.
inline constexpr absl::Duration kRegionRoundTrip = absl::Milliseconds(10);

// The region of each worker, counted from 0 in their order: workers that a chain of short round
// trips joins. A worker of which no round trip is known is a region by itself.
std::vector<uint32_t> RegionsOf(const std::vector<CandidateWorker>& workers);

// Gives every ordered pair what it lacks, marked as an estimate. A rate is the best that was
// measured from the one's region to the other's, or else between regions whose round trip is like
// theirs: what the slower interface of a pair cannot do says nothing of the way between others. A
// latency is the median of those between the two regions. What nothing is known to compare with
// stays unknown.
void EstimateLinks(std::vector<CandidateWorker>* workers);

// Pairs whose goodput is worth knowing before anything is planned, the most telling ones first:
// each worker with its nearest one, then one pair for each two regions, the nearest ones first and
// no more than three pairs for each worker. By places in `workers`; without those that are
// measured.
std::vector<std::pair<uint32_t, uint32_t>> TellingPairs(
    const std::vector<CandidateWorker>& workers);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_LINK_ESTIMATES_H_
