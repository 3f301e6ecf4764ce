// What the layers of one rank ask of the other ranks of a tensor-parallel group: sums, at the two
// borders of a region whose matrices are split (Megatron-LM, Section 3).
//
//   x = x + group->Leave(down(silu(gate(group->Enter(normed)))))
//
// Internal to worker/stage (it shows LibTorch). Threads: the rank's; calls of all ranks come in the
// same order. Errors: StatusError (torch_scope.h), for which the group has ended.
#ifndef LONGHAUL_WORKER_STAGE_GROUP_RANK_GROUP_H_
#define LONGHAUL_WORKER_STAGE_GROUP_RANK_GROUP_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"
#include "worker/stage/group/communicators.h"

namespace longhaul::worker {

class RankGroup {
 public:
  RankGroup(RankCommunicators ranks, std::shared_ptr<collective::Member> member)
      : ranks_(std::move(ranks)), member_(std::move(member)) {}

  uint32_t rank() const { return ranks_.exact->rank(); }
  uint32_t size() const { return ranks_.exact->size(); }
  // Of the group; OK, or why it has ended.
  Status status() const { return ranks_.exact->status(); }
  void End(const Status& reason) const { ranks_.exact->Abort(reason); }
  // Waits until all ranks are here: around what ranks must not do while others compute.
  void Meet() const;

  // Of what every rank has whole and multiplies with its share of a matrix: as it was. Backward
  // each rank has the gradient of its own products; it becomes the sum over ranks.
  at::Tensor Enter(const at::Tensor& whole) const;
  // Of what each rank has of a sum: the sum over ranks, in the type of `part`. Its gradient is that
  // of every part.
  at::Tensor Leave(const at::Tensor& part) const;

  // Exact and without gradients: a new tensor, in the type of `part`, which is fp32, fp16 or bf16.
  at::Tensor Sum(const at::Tensor& part) const;
  at::Tensor Maximum(const at::Tensor& part) const;

 private:
  struct Entered;
  struct Left;

  const RankCommunicators ranks_;
  const std::shared_ptr<collective::Member> member_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_RANK_GROUP_H_
