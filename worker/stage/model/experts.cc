#include "worker/stage/model/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace longhaul::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The product of the rows of each expert with its matrix, all of them one call. `ends`: (experts)
// int32, the row behind each expert's last one.
struct GroupedProduct : torch::autograd::Function<GroupedProduct> {
  static Variable forward(AutogradContext* context, const Variable& rows, const at::Tensor& ends,
                          const Experts::Matrices* matrices, const std::vector<int64_t>& counts) {
    context->save_for_backward({rows, ends});
    context->saved_data["matrices"] = reinterpret_cast<int64_t>(matrices);
    context->saved_data["counts"] = counts;
    return at::_grouped_mm(rows, matrices->stack.transpose(1, 2), ends);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const matrices =
        reinterpret_cast<const Experts::Matrices*>(  // NOLINT(performance-no-int-to-ptr)
            context->saved_data["matrices"].toInt());
    const std::vector<int64_t> counts = context->saved_data["counts"].toIntVector();
    const variable_list saved = context->get_saved_variables();
    const at::Tensor of_outputs = gradients[0].contiguous();
    const at::Tensor of_weights = at::_grouped_mm(of_outputs.t(), saved[0], saved[1]);
    for (size_t expert = 0; expert < counts.size(); ++expert) {
      // A product over no rows is not written.
      if (counts[expert] == 0) of_weights.select(0, static_cast<int64_t>(expert)).zero_();
    }
    matrices->AddToGradients(of_weights);
    return {at::_grouped_mm(of_outputs, matrices->stack, saved[1]), Variable(), Variable(),
            Variable()};
  }
};

}  // namespace

void Experts::Matrices::AddToGradients(const at::Tensor& more) const {
  const at::Tensor& first = of_experts.front().weight.grad();
  if (first.defined() && gradients.defined() && first.data_ptr() == gradients.data_ptr()) {
    gradients.add_(more);
    return;
  }
  const auto of_expert = [](const at::Tensor& stacked, size_t expert) {
    return stacked.select(0, static_cast<int64_t>(expert));
  };
  if (first.defined()) {  // by a microbatch without a token for any of them
    for (size_t expert = 0; expert < of_experts.size(); ++expert) {
      of_experts[expert].weight.mutable_grad().add_(of_expert(more, expert));
    }
    return;
  }
  if (gradients.defined()) {
    gradients.copy_(more);
  } else {
    gradients = more.to(at::kFloat);
  }
  for (size_t expert = 0; expert < of_experts.size(); ++expert) {
    of_experts[expert].weight.mutable_grad() = of_expert(gradients, expert);
  }
}

Experts::Experts(LayerMaker& make, const std::string& prefix, uint32_t count) {
  for (uint32_t expert = 0; expert < count; ++expert) {
    const std::string of = fmt::format("{}{}.", prefix, expert);
    const auto add = [&](const std::string& name, Matrices* matrices) {
      Linear linear = make.MakeLinear(of + name);
      if (linear.weight.defined()) matrices->of_experts.push_back(std::move(linear));
    };
    add("gate_proj", &gate_);
    add("up_proj", &up_);
    add("down_proj", &down_);
  }
  for (Matrices* const matrices : {&gate_, &up_, &down_}) {
    matrices->stack = make.Stack(matrices->of_experts);
  }
}

at::Tensor Experts::operator()(const at::Tensor& rows, const std::vector<int64_t>& counts) const {
  return gate_.stack.defined() && rows.size(0) > 0 ? Together(rows, counts)
                                                   : OneByOne(rows, counts);
}

at::Tensor Experts::OneByOne(const at::Tensor& rows, const std::vector<int64_t>& counts) const {
  std::vector<at::Tensor> given = rows.split_with_sizes(counts);
  for (size_t expert = 0; expert < given.size(); ++expert) {
    // All of them, those without tokens too: their gradients are zero, not missing.
    const at::Tensor& x = given[expert];
    const at::Tensor activated = at::silu(gate_.of_experts[expert](x));
    given[expert] = down_.of_experts[expert](activated * up_.of_experts[expert](x));
  }
  return at::cat(given);
}

at::Tensor Experts::Together(const at::Tensor& rows, const std::vector<int64_t>& counts) const {
  std::vector<int32_t> ends;
  int64_t end = 0;
  for (const int64_t count : counts) ends.push_back(static_cast<int32_t>(end += count));
  const at::Tensor there = at::tensor(ends, at::kInt).to(rows.device());
  const auto product = [&](const Matrices& matrices, const at::Tensor& x) {
    return GroupedProduct::apply(x, there, &matrices, counts);
  };
  const at::Tensor activated = at::silu(product(gate_, rows));
  return product(down_, activated * product(up_, rows));
}

}  // namespace longhaul::worker
