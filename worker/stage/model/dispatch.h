// Sends tokens to the experts that the router chose, and brings the experts' outputs back. No other
// code knows which rank holds which expert.
//
// A token has one slot for each of its experts. Slots are sorted by expert, then by token, so the
// rows of an expert are contiguous and their order is deterministic. No token is dropped: an expert
// takes any number of tokens. In a group, an expert's rows are ordered by their rank of origin.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time; in a group all ranks make
// the same calls in the same order. Errors: LibTorch's exceptions, and rank_group.h's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/stage/group/rank_group.h"

namespace longhaul::worker {

// Numbers of rows in the all-to-all among ranks that hold all experts between them.
struct SlotExchange {
  std::vector<int64_t> send, receive;  // rows to and from each rank of the group
  // Rows received for each of this rank's experts from each rank of the set: [rank of the
  // set][expert].
  std::vector<std::vector<int64_t>> blocks;
};

class Dispatch {
 public:
  // `chosen`: (tokens, slots of a token) int64, this rank's tokens; numbers are below `experts`. On
  // a GPU the host waits for the counts. `group`: null without a group; else it outlives every
  // tensor computed here.
  Dispatch(const at::Tensor& chosen, int64_t experts, const RankGroup* group);

  // Tokens of each expert of the block, summed over ranks.
  const std::vector<int64_t>& counts() const { return counts_; }
  // Rows of each expert of this rank, in the order of Send's result.
  const std::vector<int64_t>& held() const { return held_; }
  // Returns the rows for this rank's experts from all ranks. `rows`: (tokens, channels), this
  // rank's tokens. In backward a token's gradient is the sum over its slots.
  at::Tensor Send(const at::Tensor& rows) const;
  // Brings the experts' outputs back and sums them, weighted: one fp32 row for each of this rank's
  // tokens, summed in slot order. `of_experts`: one row for each row that Send returned, in the
  // same order. `weights`: (tokens, slots of a token) fp32.
  at::Tensor Combine(const at::Tensor& of_experts, const at::Tensor& weights) const;

 private:
  void Count(const at::Tensor& sorted, int64_t experts);

  const RankGroup* const group_;
  std::vector<int64_t> counts_, held_;
  std::shared_ptr<const SlotExchange> exchange_;  // set when ranks share the experts
  at::Tensor tokens_;                             // token of each slot, slots sorted by expert
  at::Tensor places_;  // (tokens, slots of a token): the slot's index in that order
};

}  // namespace longhaul::worker
