// Sends tokens to the experts that the router chose, and brings the experts' outputs back. No other
// code knows which rank holds which expert.
//
// A token has one slot for each of its experts. Slots are sorted by expert, then by token. So the
// rows of an expert are contiguous, and their order is deterministic. No token is dropped: an
// expert takes any number of tokens. In a group, the rows of an expert are ordered by the rank that
// they come from.
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

// Numbers of rows in the all-to-all that sends tokens to their experts, and in the all-to-all that
// brings outputs back. The exchange runs in a set of ranks that together hold each expert once.
struct SlotExchange {
  std::vector<int64_t> send, receive;  // rows to and from each rank of the group; 0 outside the set
  // Rows received from each rank of the set for each expert of this rank: [rank of the
  // set][expert].
  std::vector<std::vector<int64_t>> blocks;
};

class Dispatch {
 public:
  // `chosen`: for each token of this rank the numbers of its experts, (tokens, slots of a token)
  // int64, below `experts`. `group`: null without a group; else it must outlive each tensor that
  // Send or Combine returns. On a GPU the constructor blocks the host until it knows the counts.
  Dispatch(const at::Tensor& chosen, int64_t experts, const RankGroup* group);

  // Number of tokens of each expert of the block, over all ranks.
  const std::vector<int64_t>& counts() const { return counts_; }
  // Number of rows of each expert of this rank, in the order of the rows that Send returns.
  const std::vector<int64_t>& held() const { return held_; }
  // Sends `rows`, this rank's tokens (tokens, channels), to their experts. Returns the rows that
  // the experts of this rank get, (sum of held(), channels), sorted by expert. In backward the
  // gradient of a token is the sum over its slots.
  at::Tensor Send(const at::Tensor& rows) const;
  // Brings the experts' outputs back and sums them with `weights`, (tokens, slots of a token) fp32.
  // `of_experts`: an output for each row that Send returned, in the same order. Returns one fp32
  // row for each token of this rank, summed in the order of its slots.
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
