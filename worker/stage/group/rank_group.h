// The exchanges that the layers of a rank make with the other ranks of a tensor-parallel group. A
// region is a part of the model in which matrices are split over ranks. The exchanges happen where
// regions begin and end.
//
//   x = group->Begin(x);                                       // before a stage's blocks
//   y = group->Enter(norm(group->EnterNorm(x)));
//   x = x + group->Leave(down(silu(gate(y)) * up(y)));
//   x = group->End(x);                                         // after the blocks
//
// Three kinds of groups differ in what a rank holds of the hidden state between regions:
//
//   plain     all of it (Megatron-LM, Section 3)
//   sequence  its part of the tokens of each row: with t ranks, norms and residuals take 1/t of the
//             memory
//   partial   first some shared channels, which are the same on all ranks, then channels of its
//             own (CAAT-Net, Sections 3 and 4). Only shared channels are exchanged
//
// The functions exchange the following. If a cell does not name the group's kind, the function
// passes its argument on without an exchange:
//
//              forward                                   backward
//   Begin      sequence: own tokens                      gathers tokens
//              partial: own channels of the boundary     gathers channels
//   EnterNorm  nothing                                   partial: sums shared channels
//   Enter      sequence: gathers tokens                  plain: sums; sequence: sums own tokens
//   Leave      plain: sums; sequence: sums own tokens;   sequence: gathers tokens
//              partial: sums shared channels
//   ToExperts  plain: own tokens                         plain: gathers tokens
//   OfExperts  plain: gathers tokens                     plain: own tokens
//   End        as Begin's backward                       as Begin's forward
//
// Between ToExperts and OfExperts a rank has its part of the tokens of each row. It sends them to
// the ranks that have their experts (SendRows). Groups of kind partial have no experts.
//
// While gradients are summed in the backward of Enter and EnterNorm, a rank computes the weight
// gradients of the products that read the outputs of these two (overlap.h).
//
// Internal to worker/stage (it shows LibTorch). Threads: the rank's thread. All ranks must make the
// same calls in the same order. Errors: StatusError (torch_scope.h), after which the group has
// ended.
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
    bool sequence = false;        // number of tokens must be a multiple of the number of ranks
    int64_t hidden = 0;           // channels that a rank holds
    int64_t shared_channels = 0;  // fewer than `hidden`: kind partial; else equal
    // Number of parts into which the experts of a block are divided. Each part is on `size /
    // experts` consecutive ranks.
    uint32_t experts = 1;
    bool backward_waits = false;  // exchanges in backward block the host (zip)
    bool in_bf16 = false;         // products, and the tensors exchanged between them, are bf16
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
  // Ends the group: exchanges in progress and later ones fail on all ranks.
  void End(const Status& reason) const { ranks_.exact->Abort(reason); }
  // A barrier: waits until all ranks have called it, at most 5 minutes. It separates work that must
  // not run while other ranks compute.
  void Meet() const;
  // Overlaps the exchanges of this rank's backward with weight gradients.
  Overlap& overlap() const { return *overlap_; }

  // --- The functions of the file comment, each with its backward.
  at::Tensor Begin(const at::Tensor& boundary) const;
  at::Tensor EnterNorm(const at::Tensor& x) const;
  at::Tensor Enter(const at::Tensor& normed) const;
  at::Tensor Leave(const at::Tensor& part) const;
  at::Tensor ToExperts(const at::Tensor& normed) const;
  at::Tensor OfExperts(const at::Tensor& given) const;
  at::Tensor End(const at::Tensor& x) const;
  // Index of the part of the experts that is on this rank.
  uint32_t part_of_experts() const { return rank() / ranks_of_experts(); }
  // Number of ranks with the same experts.
  uint32_t ranks_of_experts() const { return size() / kind_.experts; }
  // The rank to which this rank sends tokens for experts of part `part`.
  uint32_t RankWithExperts(uint32_t part) const {
    return part * ranks_of_experts() + rank() % ranks_of_experts();
  }
  // Sums the partial results of all ranks for a whole hidden state, in any kind of group. In
  // backward each part gets the gradient of the sum.
  at::Tensor LeaveWhole(const at::Tensor& part) const;
  // In a partial group, takes a hidden state that is the same on all ranks; from here on the ranks'
  // own channels differ. Backward sums the gradients of own channels over ranks. Does nothing in
  // other groups.
  at::Tensor Spread(const at::Tensor& whole) const;
  // Takes a tensor that all ranks hold whole into a split product. Backward sums its gradient over
  // ranks. Does nothing in partial groups.
  at::Tensor EnterWhole(const at::Tensor& whole) const;

  // Sums over ranks what each has a part of, exactly, and its gradient too: each rank goes on with
  // the sum in a way of its own.
  at::Tensor SumBothWays(const at::Tensor& part) const;

  // --- Exact, that is, through RankCommunicators::exact; without gradients. Sum and Maximum reduce
  // `part` element by element over all ranks, and return a new tensor of the type of `part`: fp32,
  // fp16 or bf16.
  at::Tensor Sum(const at::Tensor& part) const;
  at::Tensor Maximum(const at::Tensor& part) const;
  // Gathers `own`, (numbers) int64, of all ranks. Returns (ranks, numbers) int64.
  at::Tensor GatherNumbers(const at::Tensor& own) const;

  // --- Without gradients, for the functions above. `way`: the member of RankCommunicators that
  // carries the exchange. A name with Own returns this rank's part; a name with Gather joins the
  // parts of all ranks. SumShared sums the shared channels and copies the rank's own channels.
  using Through = std::shared_ptr<collective::Communicator> RankCommunicators::*;
  at::Tensor SumThrough(Through way, const at::Tensor& part) const;
  // Reduce-scatter: returns this rank's tokens of the sum.
  at::Tensor SumOfOwnTokens(Through way, const at::Tensor& part) const;
  at::Tensor OwnTokens(const at::Tensor& whole) const;
  at::Tensor GatherTokens(Through way, const at::Tensor& own) const;
  at::Tensor SumShared(Through way, const at::Tensor& part) const;
  // A boundary tensor has the shared channels first, then the own channels of rank 0, of rank 1,
  // and so on.
  at::Tensor OwnChannels(const at::Tensor& boundary) const;
  at::Tensor GatherChannels(Through way, const at::Tensor& own) const;
  // All-to-all. `rows`: (sum of `send`, channels). The first send[0] rows go to rank 0, the next
  // send[1] rows to rank 1, and so on. receive[r] is the number of rows that rank r sends here.
  // Returns the received rows, ordered by sender.
  at::Tensor SendRows(Through way, const at::Tensor& rows, std::span<const int64_t> send,
                      std::span<const int64_t> receive) const;

 private:
  const Kind kind_;
  const RankCommunicators ranks_;
  const std::shared_ptr<collective::Member> member_;
  const std::unique_ptr<Overlap> overlap_;
};

}  // namespace longhaul::worker
