// The exchanges that a rank's layers make with the other ranks of a tensor-parallel group, at the
// borders of regions whose matrices are split.
//
//   x = group->Begin(x);                                       // before a stage's blocks
//   y = group->Enter(norm(group->EnterNorm(x)));
//   x = x + group->Leave(down(silu(gate(y)) * up(y)));
//   x = group->End(x);                                         // after them
//
// Three kinds of groups differ in the hidden state that a rank holds between regions:
//
//   plain     all of it (Megatron-LM, Section 3)
//   sequence  its part of every row's tokens: norms and residuals take 1/t of the memory
//   partial   some shared channels first, the same on all ranks, then the rank's own ones
//             (CAAT-Net, Sections 3 and 4): only the shared ones travel
//
//              forward                                   backward
//   Begin      sequence: own tokens                      gathers tokens
//              partial: own channels of the boundary     gathers channels
//   EnterNorm  -                                         partial: sums shared channels
//   Enter      sequence: gathers tokens                  plain: sums; sequence: sums own tokens
//   Leave      plain: sums; sequence: sums own tokens;   sequence: gathers tokens
//              partial: sums shared channels
//   ToExperts  plain: own tokens                         plain: gathers tokens
//   OfExperts  plain: gathers tokens                     plain: own tokens
//   End        as Begin's backward                       as Begin's forward
//
// Between ToExperts and OfExperts each rank has its part of every row's tokens, for every kind
// except partial, and sends them to the ranks that have their experts (SendRows).
//
// While gradients are summed in the backward of Enter and EnterNorm, a rank computes the weight
// gradients of the products that read their outputs (overlap.h).
//
// Internal to worker/stage (it shows LibTorch). Threads: the rank's; calls of all ranks come in the
// same order. Errors: StatusError (torch_scope.h), for which the group has ended.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/status.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"
#include "worker/stage/group/communicators.h"
#include "worker/stage/group/overlap.h"

namespace longhaul::worker {

class RankGroup {
 public:
  // Hidden states are (rows, tokens, channels).
  struct Kind {
    bool sequence = false;        // tokens are a multiple of the ranks
    int64_t hidden = 0;           // channels
    int64_t shared_channels = 0;  // partial: fewer than `hidden`
    // Number of parts into which a block's experts are divided. Each part is replicated on `size /
    // experts` consecutive ranks.
    uint32_t experts = 1;
    bool backward_waits = false;  // summing gradients blocks the host (zip)
    bool in_bf16 = false;         // products, and what ranks exchange between them, are bf16
    bool partial() const { return shared_channels < hidden; }
  };

  RankGroup(const Kind& kind, RankCommunicators ranks, std::shared_ptr<collective::Member> member)
      : kind_(kind),
        ranks_(std::move(ranks)),
        member_(std::move(member)),
        overlap_(std::make_unique<Overlap>(kind.backward_waits)) {}

  const Kind& kind() const { return kind_; }
  uint32_t rank() const { return ranks_.exact->rank(); }
  uint32_t size() const { return ranks_.exact->size(); }
  // Returns OK, or why the group has ended.
  Status status() const { return ranks_.exact->status(); }
  const RankCommunicators& communicators() const { return ranks_; }
  void End(const Status& reason) const { ranks_.exact->Abort(reason); }
  // Barrier: waits for all ranks, around work that must not run while others compute.
  void Meet() const;
  // Used in this rank's backward.
  Overlap& overlap() const { return *overlap_; }

  at::Tensor Begin(const at::Tensor& boundary) const;
  at::Tensor EnterNorm(const at::Tensor& x) const;
  at::Tensor Enter(const at::Tensor& normed) const;
  at::Tensor Leave(const at::Tensor& part) const;
  at::Tensor ToExperts(const at::Tensor& normed) const;
  at::Tensor OfExperts(const at::Tensor& given) const;
  at::Tensor End(const at::Tensor& x) const;
  // Index of the part of the experts that this rank holds.
  uint32_t part_of_experts() const { return rank() / ranks_of_experts(); }
  // Number of ranks with the same experts.
  uint32_t ranks_of_experts() const { return size() / kind_.experts; }
  // The rank that has part `part` of the experts for this rank's tokens.
  uint32_t RankWithExperts(uint32_t part) const {
    return part * ranks_of_experts() + rank() % ranks_of_experts();
  }
  // Sums the ranks' partial results of a whole hidden state. In backward every part gets the sum's
  // gradient.
  at::Tensor LeaveWhole(const at::Tensor& part) const;
  // Partial groups: turns a hidden state that all ranks hold into each rank's own. Backward sums
  // the gradients of own channels.
  at::Tensor Spread(const at::Tensor& whole) const;
  // Takes a tensor that all ranks hold whole into a split product: backward sums. Does nothing in
  // partial groups.
  at::Tensor EnterWhole(const at::Tensor& whole) const;

  // Exact, without gradients. Gives a new tensor of the type of `part`: fp32, fp16 or bf16.
  at::Tensor Sum(const at::Tensor& part) const;
  at::Tensor Maximum(const at::Tensor& part) const;
  // Gathers every rank's `own`, (numbers) int64, as (ranks, numbers) int64.
  at::Tensor GatherNumbers(const at::Tensor& own) const;

  // --- Without gradients, for the functions above.
  using Through = std::shared_ptr<collective::Communicator> RankCommunicators::*;
  at::Tensor SumThrough(Through way, const at::Tensor& part) const;
  // Reduce-scatters: this rank's tokens of the sum.
  at::Tensor SumOfOwnTokens(Through way, const at::Tensor& part) const;
  at::Tensor OwnTokens(const at::Tensor& whole) const;
  at::Tensor GatherTokens(Through way, const at::Tensor& own) const;
  at::Tensor SumShared(Through way, const at::Tensor& part) const;
  // A boundary tensor holds the shared channels, then all ranks' own ones.
  at::Tensor OwnChannels(const at::Tensor& boundary) const;
  at::Tensor GatherChannels(Through way, const at::Tensor& own) const;
  // All-to-all. The first send[0] of `rows`, (sum of `send`, channels), go to rank 0, the next
  // send[1] to rank 1, and so on. Returns the received rows, ordered by sender; receive[r] is the
  // number of rows from rank r.
  at::Tensor SendRows(Through way, const at::Tensor& rows, std::span<const int64_t> send,
                      std::span<const int64_t> receive) const;

 private:
  const Kind kind_;
  const RankCommunicators ranks_;
  const std::shared_ptr<collective::Member> member_;
  const std::unique_ptr<Overlap> overlap_;
};

}  // namespace longhaul::worker
