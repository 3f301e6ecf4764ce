// Sizes of attention that stages and plans both use. Where no fused kernel computes attention, its
// queries are cut into chunks, so that the scores of a long context are never all in memory.
//
// Pure, thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace longhaul::model {

// Maximum number of scores in a chunk, where they are capped: few enough for a GPU's L2 cache. And
// of a mask's entries.
inline constexpr uint64_t kScoresOfChunk = uint64_t{1} << 22, kMaskOfChunk = uint64_t{1} << 24;
// Minimum number of queries in a chunk. With fewer, a GPU takes longer to begin than to compute.
inline constexpr uint64_t kFewestQueriesOfChunk = 32;

// Returns the number of queries in a chunk of at most `most` scores. `scores_of_query`: the scores
// of a query's token over all rows, heads and keys; `queries`: all of them.
constexpr uint64_t QueriesOfChunk(uint64_t queries, uint64_t scores_of_query, uint64_t most) {
  const uint64_t all = std::max<uint64_t>(queries, 1);
  return std::clamp<uint64_t>(most / std::max<uint64_t>(scores_of_query, 1),
                              std::min(kFewestQueriesOfChunk, all), all);
}

// True if fused kernels for bf16 take heads of so many channels.
constexpr bool HasFusedKernel(uint64_t head_channels) {
  return head_channels <= 256 && head_channels % 8 == 0;
}

// Tokens of a document for which fused kernels keep memory, however short it is.
inline constexpr uint64_t kTileOfDocument = 128;

// Returns for how many documents, of all rows together, a recorded pass computes attention. A
// microbatch of more is computed without a recording. Documents that are missing cost a little
// time, and a tile of memory each.
constexpr uint64_t MostDocumentsRecorded(uint64_t rows, uint64_t context) {
  constexpr uint64_t kTokensOfDocument = 64;
  return rows * std::max<uint64_t>(context / kTokensOfDocument, 1);
}

}  // namespace longhaul::model
