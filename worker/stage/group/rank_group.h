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

#include "transport/collective/communicator.h"

namespace longhaul::worker {

class RankGroup {
 public:
  explicit RankGroup(std::unique_ptr<collective::Communicator> ranks) : ranks_(std::move(ranks)) {}

  uint32_t rank() const { return ranks_->rank(); }
  uint32_t size() const { return ranks_->size(); }
  collective::Communicator& communicator() const { return *ranks_; }

  // Of what every rank has whole and multiplies with its share of a matrix: as it was. Backward
  // each rank has the gradient of its own products; it becomes the sum over ranks.
  at::Tensor Enter(const at::Tensor& whole) const;
  // Of what each rank has of a sum: the sum over ranks, in the type of `part`. Its gradient is that
  // of every part.
  at::Tensor Leave(const at::Tensor& part) const;

  // Without gradients: a new tensor, in the type of `part`, which is fp32, fp16 or bf16.
  at::Tensor Sum(const at::Tensor& part) const { return Reduce(part, collective::Reduction::kSum); }
  at::Tensor Maximum(const at::Tensor& part) const {
    return Reduce(part, collective::Reduction::kMax);
  }

 private:
  at::Tensor Reduce(const at::Tensor& part, collective::Reduction reduction) const;

  const std::unique_ptr<collective::Communicator> ranks_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_RANK_GROUP_H_
