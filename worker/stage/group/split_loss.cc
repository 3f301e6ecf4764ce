#include "worker/stage/group/split_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// loss = log sum exp(logits - max) + max - logit of the target.
struct SplitLoss : torch::autograd::Function<SplitLoss> {
  static Variable forward(AutogradContext* context, const Variable& logits,
                          const at::Tensor& targets, const RankGroup* group, int64_t first) {
    const at::Tensor maximum = group->Maximum(logits.amax(1));
    at::Tensor shares = (logits - maximum.unsqueeze(1)).exp_();
    const at::Tensor own = targets - first;
    const at::Tensor column = own.clamp(0, logits.size(1) - 1).unsqueeze(1);
    const at::Tensor is_here = own.ge(0).logical_and(own.lt(logits.size(1)));
    const at::Tensor of_target = logits.gather(1, column).squeeze(1).mul(is_here);
    const at::Tensor sums = group->Sum(at::stack({shares.sum(1), of_target}));
    const at::Tensor counts = targets.ne(kNoTarget);
    shares.div_(sums[0].unsqueeze(1));
    context->save_for_backward({shares, column, is_here, counts});
    return (sums[0].log() + maximum - sums[1]).mul(counts);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &shares = saved[0], &column = saved[1], &is_here = saved[2];
    at::Tensor gradient = shares.scatter_add(1, column, is_here.to(at::kFloat).neg().unsqueeze(1));
    gradient.mul_(saved[3].unsqueeze(1)).mul_(gradients[0].unsqueeze(1));
    return {gradient, Variable(), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor SplitLosses(const RankGroup& group, const at::Tensor& logits, const at::Tensor& targets,
                       int64_t first) {
  return SplitLoss::apply(logits, targets, &group, first);
}

}  // namespace longhaul::worker
