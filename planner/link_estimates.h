// Estimates rates and latencies of unmeasured links from measured ones. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

// Two workers with at most this round trip are in one region.
inline constexpr absl::Duration kRegionRoundTrip = absl::Milliseconds(10);

// Returns the region of each worker, numbered from 0 in their order. Workers joined by a chain of
// short round trips are in one region. A worker without a known round trip is a region by itself.
std::vector<uint32_t> RegionsOf(const std::vector<CandidateWorker>& workers);

// Fills in the missing rates and latencies of every ordered pair of workers, and marks these links
// as estimates. The rate is the best one measured between the same two regions in this direction,
// else the best one between regions whose round trip is the most similar, by a factor of at most 2.
// The best counts, not the mean, because one slow interface does not limit links between other
// workers. The latency is that of the other direction, else the median between the two regions.
// Without comparable links, the value stays unknown (0).
void EstimateLinks(std::vector<CandidateWorker>* workers);

// Returns pairs of indices into `workers` whose goodput is worth measuring before the plan, the
// most useful first; the smaller index comes first in a pair. First each worker that is in no pair
// yet gets one with its nearest worker. Then each two regions get one pair, the nearest regions
// first. There are at most three times as many pairs as workers. Pairs whose goodput was measured
// are left out.
std::vector<std::pair<uint32_t, uint32_t>> TellingPairs(
    const std::vector<CandidateWorker>& workers);

}  // namespace longhaul::coordinator
