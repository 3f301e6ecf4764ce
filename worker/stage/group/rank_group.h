// What the layers of one rank ask of the other ranks of a tensor-parallel group: exchanges at the
// borders of regions whose matrices are split.
//
//   x = group->Begin(x);                                       // before a stage's blocks
//   y = group->Enter(norm(group->EnterNorm(x)));
//   x = x + group->Leave(down(silu(gate(y)) * up(y)));
//   x = group->End(x);                                         // after them
//
// Three kinds of groups differ in what a rank has of the hidden state between regions:
//
//   plain     all of it (Megatron-LM, Section 3)
//   sequence  its part of every row's tokens: norms and residuals take 1/t of the memory
//   partial   the first channels as all others have them, the rest its own (CAAT-Net, Sections 3
//             and 4): only the shared ones travel
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
// Between ToExperts and OfExperts each rank has its part of every row's tokens, whatever the kind
// (not partial), and sends them to the ranks that have their experts (SendRows).
//
// While gradients are summed in the backward of Enter and EnterNorm, a rank computes the weight
// gradients of the products that read what they gave (overlap.h).
//
// Internal to worker/stage (it shows LibTorch). Threads: the rank's; calls of all ranks come in the
// same order. Errors: StatusError (torch_scope.h), for which the group has ended.
#ifndef LONGHAUL_WORKER_STAGE_GROUP_RANK_GROUP_H_
#define LONGHAUL_WORKER_STAGE_GROUP_RANK_GROUP_H_

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
    // A block's experts are in so many parts. A part is whole on each of `size / experts` ranks
    // that are neighbours.
    uint32_t experts = 1;
    bool backward_waits = false;  // the host does for the device in sums of gradients: zip
    bool in_bf16 = false;         // products are, and so is what ranks exchange between them
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
  // Of the group; OK, or why it has ended.
  Status status() const { return ranks_.exact->status(); }
  const RankCommunicators& communicators() const { return ranks_; }
  void End(const Status& reason) const { ranks_.exact->Abort(reason); }
  // Waits until all ranks are here: around what ranks must not do while others compute.
  void Meet() const;
  // Of this rank's backward.
  Overlap& overlap() const { return *overlap_; }

  at::Tensor Begin(const at::Tensor& boundary) const;
  at::Tensor EnterNorm(const at::Tensor& x) const;
  at::Tensor Enter(const at::Tensor& normed) const;
  at::Tensor Leave(const at::Tensor& part) const;
  at::Tensor ToExperts(const at::Tensor& normed) const;
  at::Tensor OfExperts(const at::Tensor& given) const;
  at::Tensor End(const at::Tensor& x) const;
  // Of the parts of the experts, that which this rank has.
  uint32_t part_of_experts() const { return rank() / ranks_of_experts(); }
  // Ranks with the same experts.
  uint32_t ranks_of_experts() const { return size() / kind_.experts; }
  // The rank that has part `part` of the experts for this rank's tokens.
  uint32_t RankWithExperts(uint32_t part) const {
    return part * ranks_of_experts() + rank() % ranks_of_experts();
  }
  // The sum over ranks of what each has of a whole hidden state; the gradient of every part is that
  // of the sum.
  at::Tensor LeaveWhole(const at::Tensor& part) const;
  // Of a hidden state that all ranks have alike, before it becomes each rank's own (partial).
  // Backward: own channels' gradients are summed.
  at::Tensor Spread(const at::Tensor& whole) const;
  // Of what all have whole, on its way into a split product: backward sums. Nothing where kinds are
  // partial.
  at::Tensor EnterWhole(const at::Tensor& whole) const;

  // Exact and without gradients: a new tensor, in the type of `part`, which is fp32, fp16 or bf16.
  at::Tensor Sum(const at::Tensor& part) const;
  at::Tensor Maximum(const at::Tensor& part) const;
  // (ranks, numbers) int64: every rank's `own`, (numbers) int64.
  at::Tensor GatherNumbers(const at::Tensor& own) const;

  // --- Without gradients, for the functions above.
  using Through = std::shared_ptr<collective::Communicator> RankCommunicators::*;
  at::Tensor SumThrough(Through way, const at::Tensor& part) const;
  // Of this rank's tokens.
  at::Tensor SumOfOwnTokens(Through way, const at::Tensor& part) const;
  at::Tensor OwnTokens(const at::Tensor& whole) const;
  at::Tensor GatherTokens(Through way, const at::Tensor& own) const;
  at::Tensor SumShared(Through way, const at::Tensor& part) const;
  // A boundary has the shared channels, then all ranks' own ones.
  at::Tensor OwnChannels(const at::Tensor& boundary) const;
  at::Tensor GatherChannels(Through way, const at::Tensor& own) const;
  // Of `rows`, (sum of `send`, channels), the first send[0] go to rank 0, those behind them to rank
  // 1, ...; gives as many as `receive` says, in the order of the ranks that they come from.
  at::Tensor SendRows(Through way, const at::Tensor& rows, std::span<const int64_t> send,
                      std::span<const int64_t> receive) const;

 private:
  const Kind kind_;
  const RankCommunicators ranks_;
  const std::shared_ptr<collective::Member> member_;
  const std::unique_ptr<Overlap> overlap_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_RANK_GROUP_H_
