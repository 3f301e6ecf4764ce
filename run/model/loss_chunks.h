// Cuts the tokens of a loss into chunks, so that the logits of a large vocabulary are never all in
// memory. Stages and plans both use it.
//
// Pure, thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace longhaul::model {

// Maximum size of a chunk's logits in fp32.
inline constexpr uint64_t kLogitsBytes = uint64_t{64} << 20;
// Minimum number of tokens in a chunk. Every chunk reads and writes the gradient of the head's
// matrix once; with fewer tokens, this costs more than the chunk's matrix products.
inline constexpr uint64_t kFewestTokensOfAChunk = 128;

// The tokens of a microbatch, cut into nearly equal chunks.
struct LossChunks {
  uint64_t tokens = 0;  // per chunk; the last one may have fewer
  uint64_t count = 1;
};
// `tokens`: of a microbatch, at least 1. `vocabulary`: rows of the head, at least 1.
constexpr LossChunks LossChunksOf(uint64_t tokens, uint64_t vocabulary) {
  const uint64_t most = std::max(kFewestTokensOfAChunk, kLogitsBytes / (vocabulary * 4));
  const uint64_t least_count = (tokens + most - 1) / most;
  const uint64_t each = (tokens + least_count - 1) / least_count;
  return {.tokens = each, .count = (tokens + each - 1) / each};
}

}  // namespace longhaul::model
