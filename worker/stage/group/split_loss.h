// Cross-entropy of logits whose vocabulary is shared by ranks: no rank has all logits of a token.
// Two exchanges of 4 and 8 bytes a token instead of the logits.
//
// Internal to worker/stage (it shows LibTorch). Errors: as rank_group.h.
#ifndef LONGHAUL_WORKER_STAGE_GROUP_SPLIT_LOSS_H_
#define LONGHAUL_WORKER_STAGE_GROUP_SPLIT_LOSS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/stage/group/rank_group.h"

namespace longhaul::worker {

// The sum over targets that are not kNoTarget, the same fp32 scalar on all ranks. `logits`:
// (tokens, this rank's share of the vocabulary) fp32, from entry `first` of the vocabulary on.
// `targets`: (tokens) int64.
at::Tensor SumOfSplitLosses(const RankGroup& group, const at::Tensor& logits,
                            const at::Tensor& targets, int64_t first);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_SPLIT_LOSS_H_
