#include "worker/stage/group/rank_group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <vector>

#include "base/check.h"
#include "worker/stage/device/torch_scope.h"

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
    case at::kLong:
      return collective::Dtype::kBytes;
    default:
      break;
  }
  LH_CHECK(false, "ranks do not exchange tensors of type {}",
           static_cast<int>(tensor.scalar_type()));
  return collective::Dtype::kBytes;
}

// Elements of that type in the tensor.
uint64_t CountOf(const at::Tensor& tensor) {
  return tensor.nbytes() / collective::BytesPerElement(DtypeOf(tensor));
}

// The queue of collectives on the stream of this thread's device.
collective::Queue QueueOf(const at::Device& device) {
  if (device.is_cpu()) return {};
  const c10::impl::VirtualGuardImpl guard(device.type());
  return {guard.getStream(device).native_handle()};
}

constexpr auto kSum = collective::Reduction::kSum;
// Ranks meet where all have work of the same length.
constexpr absl::Duration kMeetLimit = absl::Minutes(5);
constexpr RankGroup::Through kExact = &RankCommunicators::exact,
                             kForward = &RankCommunicators::forward,
                             kBackward = &RankCommunicators::backward;

at::Tensor Reduce(collective::Communicator& ranks, const at::Tensor& part,
                  collective::Reduction reduction) {
  const at::Tensor dense = part.contiguous();
  at::Tensor result = at::empty_like(dense);
  ThrowIfError(ranks.AllReduce(dense.const_data_ptr(), result.mutable_data_ptr(),
                               static_cast<uint64_t>(dense.numel()), DtypeOf(dense), reduction,
                               QueueOf(dense.device())));
  return result;
}

// (ranks, ...): every rank's `own`.
at::Tensor Gather(collective::Communicator& ranks, const at::Tensor& own) {
  const at::Tensor dense = own.contiguous();
  std::vector<int64_t> sizes = dense.sizes().vec();
  sizes.insert(sizes.begin(), ranks.size());
  at::Tensor all = at::empty(sizes, dense.options().requires_grad(false));
  ThrowIfError(ranks.AllGather(dense.const_data_ptr(), all.mutable_data_ptr(), CountOf(dense),
                               DtypeOf(dense), QueueOf(dense.device())));
  return all;
}

using Exchange = at::Tensor (*)(const RankGroup& group, const at::Tensor& tensor);

// Exchanges that autograd sees as one operation; null: nothing happens that way.
template <Exchange kThere, Exchange kBack>
struct Both : torch::autograd::Function<Both<kThere, kBack>> {
  static Variable forward(AutogradContext* context, const Variable& x, const RankGroup* group) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    if constexpr (kThere == nullptr)
      return x.view_as(x);
    else
      return kThere(*group, x);  // NOLINT(readability-else-after-return): of a constexpr if
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if constexpr (kBack == nullptr) return {gradients[0], Variable()};
    const auto* const group =
        reinterpret_cast<const RankGroup*>(  // NOLINT(performance-no-int-to-ptr)
            context->saved_data["group"].toInt());
    return {kBack(*group, gradients[0]), Variable()};
  }
};

template <RankGroup::Through kWay>
at::Tensor Sums(const RankGroup& group, const at::Tensor& x) {
  return group.SumThrough(kWay, x);
}
template <RankGroup::Through kWay>
at::Tensor SumsOfOwnTokens(const RankGroup& group, const at::Tensor& x) {
  return group.SumOfOwnTokens(kWay, x);
}
template <RankGroup::Through kWay>
at::Tensor GathersTokens(const RankGroup& group, const at::Tensor& x) {
  return group.GatherTokens(kWay, x);
}
template <RankGroup::Through kWay>
at::Tensor SumsShared(const RankGroup& group, const at::Tensor& x) {
  return group.SumShared(kWay, x);
}
// Behind a norm gradients are fp32. They travel as products' gradients do.
at::Tensor SumsSharedGradients(const RankGroup& group, const at::Tensor& x) {
  if (!group.kind().in_bf16) return group.SumShared(&RankCommunicators::backward, x);
  const int64_t shared = group.kind().shared_channels, own = group.kind().hidden - shared;
  if (shared == 0) return x.clone();
  const at::Tensor sums =
      group.SumThrough(&RankCommunicators::backward, x.narrow(-1, 0, shared).to(at::kBFloat16));
  return at::cat({sums.to(x.scalar_type()), x.narrow(-1, shared, own)}, -1);
}
template <RankGroup::Through kWay>
at::Tensor GathersChannels(const RankGroup& group, const at::Tensor& x) {
  return group.GatherChannels(kWay, x);
}
// Exchanges gradients while the deferred weight gradients are computed.
template <Exchange kExchange>
at::Tensor Overlapped(const RankGroup& group, const at::Tensor& x) {
  return group.overlap().Exchange(x.device(), [&] { return kExchange(group, x); });
}
at::Tensor TakesOwnTokens(const RankGroup& group, const at::Tensor& x) {
  return group.OwnTokens(x);
}
at::Tensor TakesOwnChannels(const RankGroup& group, const at::Tensor& x) {
  return group.OwnChannels(x);
}
at::Tensor SumsOwnChannels(const RankGroup& group, const at::Tensor& x) {
  const int64_t shared = group.kind().shared_channels, own = group.kind().hidden - shared;
  return at::cat({x.narrow(-1, 0, shared), group.Sum(x.narrow(-1, shared, own))}, -1);
}

}  // namespace

at::Tensor RankGroup::Begin(const at::Tensor& boundary) const {
  if (kind_.sequence) {
    return Both<TakesOwnTokens, GathersTokens<kExact>>::apply(boundary, this);
  }
  if (!kind_.partial()) return boundary;
  return Both<TakesOwnChannels, GathersChannels<kExact>>::apply(boundary, this);
}

at::Tensor RankGroup::EnterNorm(const at::Tensor& x) const {
  return kind_.partial() ? Both<nullptr, Overlapped<SumsSharedGradients>>::apply(x, this) : x;
}

at::Tensor RankGroup::Enter(const at::Tensor& normed) const {
  if (kind_.sequence) {
    return Both<GathersTokens<kForward>, Overlapped<SumsOfOwnTokens<kBackward>>>::apply(normed,
                                                                                        this);
  }
  return EnterWhole(normed);
}

at::Tensor RankGroup::EnterWhole(const at::Tensor& whole) const {
  return kind_.partial() ? whole : Both<nullptr, Overlapped<Sums<kBackward>>>::apply(whole, this);
}

at::Tensor RankGroup::Leave(const at::Tensor& part) const {
  if (kind_.sequence) {
    return Both<SumsOfOwnTokens<kForward>, GathersTokens<kBackward>>::apply(part, this);
  }
  if (kind_.partial()) return Both<SumsShared<kForward>, nullptr>::apply(part, this);
  return Both<Sums<kForward>, nullptr>::apply(part, this);
}

at::Tensor RankGroup::ToExperts(const at::Tensor& normed) const {
  if (kind_.sequence) return normed;
  return Both<TakesOwnTokens, GathersTokens<kBackward>>::apply(normed, this);
}

at::Tensor RankGroup::OfExperts(const at::Tensor& given) const {
  if (kind_.sequence) return given;
  return Both<GathersTokens<kForward>, TakesOwnTokens>::apply(given, this);
}

at::Tensor RankGroup::SumBothWays(const at::Tensor& part) const {
  return Both<Sums<kExact>, Sums<kExact>>::apply(part, this);
}

at::Tensor RankGroup::LeaveWhole(const at::Tensor& part) const {
  return Both<Sums<kForward>, nullptr>::apply(part, this);
}

at::Tensor RankGroup::Spread(const at::Tensor& whole) const {
  return kind_.partial() ? Both<nullptr, SumsOwnChannels>::apply(whole, this) : whole;
}

at::Tensor RankGroup::End(const at::Tensor& x) const {
  if (kind_.sequence) return Both<GathersTokens<kExact>, TakesOwnTokens>::apply(x, this);
  if (!kind_.partial()) return x;
  return Both<GathersChannels<kExact>, TakesOwnChannels>::apply(x, this);
}

at::Tensor RankGroup::Sum(const at::Tensor& part) const {
  return SumThrough(kExact, part);
}

at::Tensor RankGroup::Maximum(const at::Tensor& part) const {
  return Reduce(*ranks_.exact, part, collective::Reduction::kMax);
}

at::Tensor RankGroup::GatherNumbers(const at::Tensor& own) const {
  return Gather(*ranks_.exact, own);
}

at::Tensor RankGroup::SumThrough(Through way, const at::Tensor& part) const {
  return Reduce(*(ranks_.*way), part, kSum);
}

at::Tensor RankGroup::OwnTokens(const at::Tensor& whole) const {
  const int64_t each = whole.size(1) / size();
  return whole.narrow(1, rank() * each, each).contiguous();
}

at::Tensor RankGroup::GatherTokens(Through way, const at::Tensor& own) const {
  const int64_t rows = own.size(0);
  const at::Tensor all = Gather(*(ranks_.*way), own);
  return all.permute({1, 0, 2, 3}).reshape({rows, size() * own.size(1), own.size(2)});
}

at::Tensor RankGroup::SumOfOwnTokens(Through way, const at::Tensor& part) const {
  const int64_t rows = part.size(0), each = part.size(1) / size(), channels = part.size(2);
  const at::Tensor by_rank =
      part.reshape({rows, size(), each, channels}).permute({1, 0, 2, 3}).contiguous();
  at::Tensor own = at::empty({rows, each, channels}, part.options().requires_grad(false));
  ThrowIfError((ranks_.*way)
                   ->ReduceScatter(by_rank.const_data_ptr(), own.mutable_data_ptr(),
                                   static_cast<uint64_t>(own.numel()), DtypeOf(part), kSum,
                                   QueueOf(part.device())));
  return own;
}

at::Tensor RankGroup::SumShared(Through way, const at::Tensor& part) const {
  const int64_t shared = kind_.shared_channels;
  if (shared == 0) return part.clone();
  return at::cat(
      {SumThrough(way, part.narrow(-1, 0, shared)), part.narrow(-1, shared, kind_.hidden - shared)},
      -1);
}

at::Tensor RankGroup::OwnChannels(const at::Tensor& boundary) const {
  const int64_t shared = kind_.shared_channels, own = kind_.hidden - shared;
  return at::cat({boundary.narrow(-1, 0, shared), boundary.narrow(-1, shared + rank() * own, own)},
                 -1);
}

at::Tensor RankGroup::GatherChannels(Through way, const at::Tensor& own) const {
  const int64_t shared = kind_.shared_channels, each = kind_.hidden - shared;
  std::vector<at::Tensor> parts = {own.narrow(-1, 0, shared)};
  for (const at::Tensor& of_rank : Gather(*(ranks_.*way), own.narrow(-1, shared, each)).unbind(0)) {
    parts.push_back(of_rank);
  }
  return at::cat(parts, -1);
}

at::Tensor RankGroup::SendRows(Through way, const at::Tensor& rows, std::span<const int64_t> send,
                               std::span<const int64_t> receive) const {
  const auto channels = static_cast<uint64_t>(rows.size(1));
  const auto blocks = [channels](std::span<const int64_t> of_ranks) {
    std::vector<collective::Block> all;
    uint64_t offset = 0;
    for (const int64_t count : of_ranks) {
      all.push_back({offset, static_cast<uint64_t>(count) * channels});
      offset += all.back().count;
    }
    return all;
  };
  const at::Tensor dense = rows.contiguous();
  at::Tensor received =
      at::empty({std::accumulate(receive.begin(), receive.end(), int64_t{0}), rows.size(1)},
                rows.options().requires_grad(false));
  ThrowIfError((ranks_.*way)
                   ->AllToAllV(dense.const_data_ptr(), blocks(send), received.mutable_data_ptr(),
                               blocks(receive), DtypeOf(dense), QueueOf(dense.device())));
  return received;
}

void RankGroup::Meet() const {
  ThrowIfError(member_->Tell("", Deadline::After(kMeetLimit)).status());
}

}  // namespace longhaul::worker
