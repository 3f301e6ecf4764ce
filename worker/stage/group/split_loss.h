// Cross-entropy when ranks share the vocabulary, so no rank has all logits of a token. Ranks
// exchange 4 and then 8 bytes a token instead of the logits.
//
// Internal to worker/stage (it shows LibTorch). Errors: as rank_group.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/stage/group/rank_group.h"

namespace longhaul::worker {

// The sum of losses over targets that are not kNoTarget: an fp32 scalar, the same on all ranks.
// `logits`: (tokens, this rank's share of the vocabulary) fp32, whose first column is entry `first`
// of the vocabulary. `targets`: (tokens) int64.
at::Tensor SumOfSplitLosses(const RankGroup& group, const at::Tensor& logits,
                            const at::Tensor& targets, int64_t first);

}  // namespace longhaul::worker
