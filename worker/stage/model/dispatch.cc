#include "worker/stage/model/dispatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

namespace longhaul::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// A row for each slot.
struct Spread : torch::autograd::Function<Spread> {
  static Variable forward(AutogradContext* context, const Variable& rows, const at::Tensor& tokens,
                          const at::Tensor& places) {
    context->save_for_backward({places});
    return rows.index_select(0, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor places = context->get_saved_variables()[0];
    const at::Tensor of_slots = gradients[0].index_select(0, places.flatten());
    return {of_slots.view({places.size(0), places.size(1), -1}).sum(1), Variable(), Variable()};
  }
};

struct WeightedSum : torch::autograd::Function<WeightedSum> {
  static Variable forward(AutogradContext* context, const Variable& rows, const Variable& weights,
                          const at::Tensor& places) {
    context->save_for_backward({rows, weights, places});
    at::Tensor sum = at::zeros({places.size(0), rows.size(1)}, rows.options().dtype(at::kFloat));
    for (int64_t slot = 0; slot < places.size(1); ++slot) {
      sum.addcmul_(rows.index_select(0, places.select(1, slot)),
                   weights.select(1, slot).unsqueeze(1));
    }
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &weights = saved[1], &places = saved[2];
    const at::Tensor& of_sum = gradients[0];
    at::Tensor of_weights = at::empty_like(weights);
    for (int64_t slot = 0; slot < places.size(1); ++slot) {
      const at::Tensor of_slot = rows.index_select(0, places.select(1, slot));
      of_weights.select(1, slot).copy_((of_sum * of_slot).sum(1));
    }
    // The outputs of all slots, token by token. They are rounded as they are made.
    at::Tensor of_slots = at::empty({places.size(0), places.size(1), rows.size(1)}, rows.options());
    at::mul_out(of_slots, of_sum.unsqueeze(1), weights.unsqueeze(2));
    return {at::empty_like(rows).index_copy_(0, places.flatten(), of_slots.flatten(0, 1)),
            of_weights, Variable()};
  }
};

// Rows that came rank by rank, each rank's by expert: by expert, each expert's by rank.
at::Tensor ByExpert(const at::Tensor& by_rank, const SlotExchange& exchange) {
  std::vector<int64_t> sizes;
  for (const auto& of_rank : exchange.blocks)
    sizes.insert(sizes.end(), of_rank.begin(), of_rank.end());
  const std::vector<at::Tensor> blocks = by_rank.split_with_sizes(sizes);
  const size_t ranks = exchange.blocks.size(), experts = exchange.blocks.front().size();
  std::vector<at::Tensor> ordered;
  for (size_t expert = 0; expert < experts; ++expert) {
    for (size_t rank = 0; rank < ranks; ++rank) ordered.push_back(blocks[rank * experts + expert]);
  }
  return at::cat(ordered);
}

at::Tensor ByRank(const at::Tensor& by_expert, const SlotExchange& exchange) {
  const size_t ranks = exchange.blocks.size(), experts = exchange.blocks.front().size();
  std::vector<int64_t> sizes;
  for (size_t expert = 0; expert < experts; ++expert) {
    for (const auto& of_rank : exchange.blocks) sizes.push_back(of_rank[expert]);
  }
  const std::vector<at::Tensor> blocks = by_expert.split_with_sizes(sizes);
  std::vector<at::Tensor> ordered;
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t expert = 0; expert < experts; ++expert)
      ordered.push_back(blocks[expert * ranks + rank]);
  }
  return at::cat(ordered);
}

at::Tensor ToHolders(const RankGroup& group, RankGroup::Through way, const at::Tensor& slots,
                     const SlotExchange& exchange) {
  return ByExpert(group.SendRows(way, slots, exchange.send, exchange.receive), exchange);
}

at::Tensor FromHolders(const RankGroup& group, RankGroup::Through way, const at::Tensor& rows,
                       const SlotExchange& exchange) {
  return group.SendRows(way, ByRank(rows, exchange), exchange.receive, exchange.send);
}

using Travel = at::Tensor (*)(const RankGroup& group, RankGroup::Through way,
                              const at::Tensor& rows, const SlotExchange& exchange);

// Rows that travel; their gradients travel back.
template <Travel kThere, Travel kBack>
struct Travels : torch::autograd::Function<Travels<kThere, kBack>> {
  static Variable forward(AutogradContext* context, const Variable& rows, const RankGroup* group,
                          const std::shared_ptr<const SlotExchange>& exchange) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    context->saved_data["exchange"] =
        c10::IValue::make_capsule(c10::make_intrusive<Held>(exchange));
    return kThere(*group, &RankCommunicators::forward, rows, *exchange);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const group =
        reinterpret_cast<const RankGroup*>(  // NOLINT(performance-no-int-to-ptr)
            context->saved_data["group"].toInt());
    const auto held =
        c10::static_intrusive_pointer_cast<Held>(context->saved_data["exchange"].toCapsule());
    return {kBack(*group, &RankCommunicators::backward, gradients[0], *held->exchange), Variable(),
            Variable()};
  }

 private:
  struct Held : torch::CustomClassHolder {
    explicit Held(std::shared_ptr<const SlotExchange> what) : exchange(std::move(what)) {}
    const std::shared_ptr<const SlotExchange> exchange;
  };
};

std::vector<int64_t> ToNumbers(const at::Tensor& row) {
  const auto* const values = row.const_data_ptr<int64_t>();
  return {values, values + row.numel()};
}

int64_t Sum(std::span<const int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// `counts`: [rank of the group][expert].
SlotExchange ExchangeAmong(const RankGroup& group,
                           const std::vector<std::vector<int64_t>>& counts) {
  const uint32_t parts = group.kind().experts;
  const size_t each = counts.front().size() / parts;
  const auto of_part = [each](const std::vector<int64_t>& of_rank, uint32_t part) {
    return std::span(of_rank).subspan(part * each, each);
  };
  SlotExchange exchange{std::vector<int64_t>(group.size()), std::vector<int64_t>(group.size()), {}};
  for (uint32_t part = 0; part < parts; ++part) {
    const uint32_t peer = group.RankWithExperts(part);
    exchange.send[peer] = Sum(of_part(counts[group.rank()], part));
    const std::span<const int64_t> from_peer = of_part(counts[peer], group.part_of_experts());
    exchange.receive[peer] = Sum(from_peer);
    exchange.blocks.emplace_back(from_peer.begin(), from_peer.end());
  }
  return exchange;
}

}  // namespace

Dispatch::Dispatch(const at::Tensor& chosen, int64_t experts, const RankGroup* group)
    : group_(group) {
  const auto [sorted, order] = at::sort(chosen.flatten(), std::optional<bool>(true), /*dim=*/0);
  const at::Tensor numbers = at::arange(order.size(0), order.options());
  tokens_ = at::floor_divide(order, chosen.size(1));
  places_ = at::empty_like(order).index_copy_(0, order, numbers).view_as(chosen);
  Count(sorted, experts);
}

void Dispatch::Count(const at::Tensor& sorted, int64_t experts) {
  const at::Tensor bounds =
      at::searchsorted(sorted, at::arange(experts + 1, sorted.options()));  // where each begins
  const at::Tensor own = bounds.narrow(0, 1, experts) - bounds.narrow(0, 0, experts);
  const at::Tensor of_all =
      (group_ == nullptr ? own.unsqueeze(0) : group_->GatherNumbers(own)).cpu();
  std::vector<std::vector<int64_t>> counts;
  for (const at::Tensor& of_rank : of_all.unbind(0)) counts.push_back(ToNumbers(of_rank));
  counts_ = ToNumbers(of_all.sum(0));
  if (group_ == nullptr || group_->kind().experts == 1) {
    held_ = counts[group_ == nullptr ? 0 : group_->rank()];
    return;
  }
  auto exchange = std::make_shared<SlotExchange>(ExchangeAmong(*group_, counts));
  held_.assign(exchange->blocks.front().size(), 0);
  for (const auto& of_rank : exchange->blocks) {
    std::ranges::transform(held_, of_rank, held_.begin(), std::plus<>());
  }
  exchange_ = std::move(exchange);
}

at::Tensor Dispatch::Send(const at::Tensor& rows) const {
  const at::Tensor slots = Spread::apply(rows, tokens_, places_);
  if (!exchange_) return slots;
  return Travels<ToHolders, FromHolders>::apply(slots, group_, exchange_);
}

at::Tensor Dispatch::Combine(const at::Tensor& of_experts, const at::Tensor& weights) const {
  const at::Tensor slots =
      exchange_ ? Travels<FromHolders, ToHolders>::apply(of_experts, group_, exchange_)
                : of_experts;
  return WeightedSum::apply(slots, weights, places_);
}

}  // namespace longhaul::worker
