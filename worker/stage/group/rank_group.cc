#include "worker/stage/group/rank_group.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/check.h"
#include "worker/stage/torch_scope.h"

namespace longhaul::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

collective::Dtype DtypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return collective::Dtype::kF32;
    case at::kHalf:
      return collective::Dtype::kF16;
    case at::kBFloat16:
      return collective::Dtype::kBf16;
    default:
      break;
  }
  LH_CHECK(false, "no ranks reduce {}", tensor.scalar_type() == at::kDouble ? "fp64" : "integers");
  return collective::Dtype::kBytes;
}

// Of the device on which this thread computes.
collective::Queue QueueOf(const at::Device& device) {
  if (device.is_cpu()) return {};
  const c10::impl::VirtualGuardImpl guard(device.type());
  return {guard.getStream(device).native_handle()};
}

at::Tensor Reduce(collective::Communicator& ranks, const at::Tensor& part,
                  collective::Reduction reduction) {
  const at::Tensor dense = part.contiguous();
  at::Tensor result = at::empty_like(dense);
  ThrowIfError(ranks.AllReduce(dense.const_data_ptr(), result.mutable_data_ptr(),
                               static_cast<uint64_t>(dense.numel()), DtypeOf(dense), reduction,
                               QueueOf(dense.device())));
  return result;
}

constexpr auto kSum = collective::Reduction::kSum;
// Ranks meet where all have work of the same length.
constexpr absl::Duration kMeetLimit = absl::Minutes(5);

}  // namespace

struct RankGroup::Entered : torch::autograd::Function<Entered> {
  static Variable forward(AutogradContext* context, const Variable& whole, const RankGroup* group) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    return whole.view_as(whole);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const group =
        reinterpret_cast<const RankGroup*>(  // NOLINT(performance-no-int-to-ptr)
            context->saved_data["group"].toInt());
    return {Reduce(*group->ranks_.backward, gradients[0], kSum), Variable()};
  }
};

struct RankGroup::Left : torch::autograd::Function<Left> {
  static Variable forward(AutogradContext* /*context*/, const Variable& part,
                          const RankGroup* group) {
    return Reduce(*group->ranks_.forward, part, kSum);
  }
  static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
    return {gradients[0], Variable()};
  }
};

at::Tensor RankGroup::Enter(const at::Tensor& whole) const {
  return Entered::apply(whole, this);
}

at::Tensor RankGroup::Leave(const at::Tensor& part) const {
  return Left::apply(part, this);
}

at::Tensor RankGroup::Sum(const at::Tensor& part) const {
  return Reduce(*ranks_.exact, part, kSum);
}

at::Tensor RankGroup::Maximum(const at::Tensor& part) const {
  return Reduce(*ranks_.exact, part, collective::Reduction::kMax);
}

void RankGroup::Meet() const {
  ThrowIfError(member_->Tell("", Deadline::After(kMeetLimit)).status());
}

}  // namespace longhaul::worker
