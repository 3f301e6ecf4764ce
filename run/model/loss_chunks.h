// How the last stage cuts the tokens when it computes its loss, so that the logits of a large
// vocabulary are never in memory all at once. Stages and plans agree on it here.
//
// Pure, thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace longhaul::model {

// Maximum size of a chunk's logits in fp32.
inline constexpr uint64_t kLogitsBytes = uint64_t{64} << 20;
// Every chunk reads and writes the gradient of the head's matrix once. With fewer rows that costs
// more than the chunk's products.
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
