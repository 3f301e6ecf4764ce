#include "worker/stage/dispatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

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
      sum += rows.index_select(0, places.select(1, slot)).to(at::kFloat) *
             weights.select(1, slot).unsqueeze(1);
    }
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &weights = saved[1], &places = saved[2];
    const at::Tensor& of_sum = gradients[0];
    at::Tensor of_rows = at::empty_like(rows), of_weights = at::empty_like(weights);
    for (int64_t slot = 0; slot < places.size(1); ++slot) {
      const at::Tensor there = places.select(1, slot);
      of_weights.select(1, slot).copy_((of_sum * rows.index_select(0, there)).sum(1));
      of_rows.index_copy_(0, there,
                          (of_sum * weights.select(1, slot).unsqueeze(1)).to(rows.scalar_type()));
    }
    return {of_rows, of_weights, Variable()};
  }
};

}  // namespace

Dispatch::Dispatch(const at::Tensor& chosen, int64_t experts) {
  const auto [sorted, order] = at::sort(chosen.flatten(), std::optional<bool>(true), /*dim=*/0);
  const at::Tensor numbers = at::arange(order.size(0), order.options());
  const at::Tensor ends = at::searchsorted(sorted, at::arange(experts, order.options()),
                                           /*out_int32=*/false, /*right=*/true)
                              .cpu();
  tokens_ = at::floor_divide(order, chosen.size(1));
  places_ = at::empty_like(order).index_copy_(0, order, numbers).view_as(chosen);
  const int64_t* const values = ends.const_data_ptr<int64_t>();
  for (int64_t expert = 0; expert < experts; ++expert) {
    counts_.push_back(values[expert] - (expert == 0 ? 0 : values[expert - 1]));
  }
}

std::vector<at::Tensor> Dispatch::Send(const at::Tensor& rows) const {
  return Spread::apply(rows, tokens_, places_).split_with_sizes(counts_);
}

at::Tensor Dispatch::Combine(const std::vector<at::Tensor>& of_experts,
                             const at::Tensor& weights) const {
  return WeightedSum::apply(at::cat(of_experts), weights, places_);
}

}  // namespace longhaul::worker
