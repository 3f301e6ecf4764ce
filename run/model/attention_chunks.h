// Cuts the queries of attention into chunks where no fused kernel computes it, so that the scores
// of a long context are never all in memory. Stages and plans both use it.
//
// Pure, thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace longhaul::model {

// Maximum number of scores, or of a mask's entries, in a chunk.
inline constexpr uint64_t kScoresOfChunk = uint64_t{1} << 24;

// Returns the number of queries in a chunk, at least 1. `scores_of_query`: the scores of a query's
// token over all rows, heads and keys; `queries`: all of them.
constexpr uint64_t QueriesOfChunk(uint64_t queries, uint64_t scores_of_query) {
  return std::clamp<uint64_t>(kScoresOfChunk / std::max<uint64_t>(scores_of_query, 1), 1,
                              std::max<uint64_t>(queries, 1));
}

}  // namespace longhaul::model
