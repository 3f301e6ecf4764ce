// Cross-entropy when ranks share the vocabulary, so that no rank has all logits of a token. Instead
// of logits, ranks exchange 12 bytes for each token: 4 for the largest logit, then 8 for two sums.
//
// Internal to worker/stage (it shows LibTorch). Errors: as rank_group.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/stage/group/rank_group.h"

namespace longhaul::worker {

// Returns the loss of each token: (tokens) fp32, the same on all ranks; 0 where the target is
// kNoTarget. `logits`: (tokens, this rank's share of the vocabulary) fp32. `first`: the vocabulary
// entry of the first column. `targets`: (tokens) int64.
at::Tensor SplitLosses(const RankGroup& group, const at::Tensor& logits, const at::Tensor& targets,
                       int64_t first);

}  // namespace longhaul::worker
