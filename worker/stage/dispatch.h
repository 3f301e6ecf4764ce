// Sends tokens to the experts that the router has chosen for them, and brings back what those have
// computed: the one place that knows where experts are.
//
// A token has a slot for each of its experts. Slots are sorted by expert, and within an expert by
// token, so that an expert's tokens lie one below another and each time in the same order. Nobody
// is dropped: an expert takes as many as come. In a group an expert's tokens of one rank lie before
// those of the next.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time; in a group all ranks make
// the same calls. Errors: LibTorch's exceptions, and rank_group.h's.
#ifndef LONGHAUL_WORKER_STAGE_DISPATCH_H_
#define LONGHAUL_WORKER_STAGE_DISPATCH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/stage/group/rank_group.h"

namespace longhaul::worker {

// Rows of all slots of a set of ranks, which have all experts between them, as they travel.
struct SlotExchange {
  std::vector<int64_t> send, receive;  // of each rank of the group
  // Of what is received: the rows for each of this rank's experts, from each rank of the set.
  // [rank of the set][expert]
  std::vector<std::vector<int64_t>> blocks;
};

class Dispatch {
 public:
  // `chosen`: (tokens, slots of a token) int64, numbers below `experts`; of this rank's tokens. On
  // a GPU the host waits for the counts. `group`: null, or it outlives what is computed.
  Dispatch(const at::Tensor& chosen, int64_t experts, const RankGroup* group);

  // Tokens of each of the block's experts, of all ranks.
  const std::vector<int64_t>& counts() const { return counts_; }
  // Rows of each expert that this rank has, in what Send gives.
  const std::vector<int64_t>& held() const { return held_; }
  // What this rank's experts get of `rows`, (tokens, channels), all ranks'. The gradient of a token
  // is the sum over its slots.
  at::Tensor Send(const at::Tensor& rows) const;
  // The weighted sums of what experts gave, as Send's: an fp32 row for each token, summed slot by
  // slot. `weights`: (tokens, slots of a token) fp32.
  at::Tensor Combine(const at::Tensor& of_experts, const at::Tensor& weights) const;

 private:
  void Count(const at::Tensor& sorted, int64_t experts);

  const RankGroup* const group_;
  std::vector<int64_t> counts_, held_;
  std::shared_ptr<const SlotExchange> exchange_;  // where experts are divided
  at::Tensor tokens_;                             // of each slot in the order of experts
  at::Tensor places_;  // (tokens, slots of a token): where in that order a slot stands
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_DISPATCH_H_
