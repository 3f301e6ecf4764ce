#include "worker/stage/layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "worker/stage/init.h"

namespace longhaul::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

void AddToGradient(const at::Tensor& parameter, const at::Tensor& more) {
  at::Tensor& sum = parameter.mutable_grad();
  if (sum.defined()) {
    sum.add_(more);
  } else {
    sum = more.to(at::kFloat);
  }
}

// Of a product that is not made apart from the sum that it is added to: the head's of a large
// vocabulary, for each chunk of tokens.
constexpr int64_t kLargeProduct = int64_t{16} << 20;

void AddProductToGradient(const at::Tensor& parameter, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor& sum = parameter.mutable_grad();
  if (sum.defined() && a.scalar_type() == at::kFloat && a.size(0) * b.size(1) > kLargeProduct) {
    sum.addmm_(a, b);
  } else if (!a.is_cuda() || a.scalar_type() == at::kFloat) {
    AddToGradient(parameter, a.mm(b));
  } else if (sum.defined()) {
    at::addmm_out(sum, sum, a, b, at::kFloat);
  } else {
    sum = at::mm(a, b, at::kFloat);
  }
}

at::Tensor Rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

// What autograd sees of a Linear.
struct Product : torch::autograd::Function<Product> {
  static Variable forward(AutogradContext* context, const Variable& x, const Linear* layer) {
    const at::Tensor input = x.to(layer->cast_weight.scalar_type());
    context->save_for_backward({input});
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    context->saved_data["type"] = x.scalar_type();
    return at::linear(input, layer->cast_weight, layer->cast_bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const layer = reinterpret_cast<const Linear*>(  // NOLINT(performance-no-int-to-ptr)
        context->saved_data["layer"].toInt());
    const at::Tensor input = context->get_saved_variables()[0];
    const at::Tensor rows = Rows(gradients[0]);
    AddProductToGradient(layer->weight, rows.t(), Rows(input));
    if (layer->bias.defined()) AddToGradient(layer->bias, rows.sum(0));
    return {rows.mm(layer->cast_weight)
                .view(input.sizes())
                .to(context->saved_data["type"].toScalarType()),
            Variable()};
  }
};

// What autograd sees of a Head. Its matrices have a column for every row of cast_weight.
struct HeadProduct : torch::autograd::Function<HeadProduct> {
  static Variable forward(AutogradContext* context, const Variable& x, const Head* head) {
    const at::Tensor input = Rows(x).to(head->cast_weight.scalar_type());
    context->save_for_backward({input});
    context->saved_data["head"] = reinterpret_cast<int64_t>(head);
    context->saved_data["type"] = x.scalar_type();
    context->saved_data["sizes"] = x.sizes().vec();
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = head->weight.size(0);
    return input.mm(head->cast_weight.t())
        .narrow(1, 0, head->weight.size(0))
        .to(at::kFloat)
        .view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const head = reinterpret_cast<const Head*>(  // NOLINT(performance-no-int-to-ptr)
        context->saved_data["head"].toInt());
    const at::Tensor input = context->get_saved_variables()[0];
    const int64_t vocabulary = head->weight.size(0), columns = head->cast_weight.size(0);
    at::Tensor rows = Rows(gradients[0]);
    if (columns == vocabulary) {
      rows = rows.to(input.scalar_type());
    } else {
      const at::Tensor whole = at::empty({rows.size(0), columns}, input.options());
      whole.narrow(1, 0, vocabulary).copy_(rows);
      whole.narrow(1, vocabulary, columns - vocabulary).zero_();
      rows = whole;
    }
    AddProductToGradient(head->weight, rows.narrow(1, 0, vocabulary).t(), input);
    return {rows.mm(head->cast_weight)
                .view(context->saved_data["sizes"].toIntVector())
                .to(context->saved_data["type"].toScalarType()),
            Variable()};
  }
};

// What autograd sees of an Embedding. `weight` is an argument so that it looks for a gradient.
struct Lookup : torch::autograd::Function<Lookup> {
  static Variable forward(AutogradContext* context, const Variable& weight, const at::Tensor& ids) {
    context->save_for_backward({weight, ids});
    return at::embedding(weight, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &weight = saved[0], &ids = saved[1];
    if (!weight.is_cuda()) {
      AddToGradient(weight, at::embedding_dense_backward(gradients[0], ids, weight.size(0),
                                                         /*padding_idx=*/-1, false));
      return {Variable(), Variable()};
    }
    at::Tensor& sum = weight.mutable_grad();
    if (!sum.defined()) sum = at::zeros_like(weight);
    // "Unsafe" does not look whether ids are within the table, for which it would wait.
    at::_index_put_impl_(sum, {ids}, gradients[0], /*accumulate=*/true, /*unsafe=*/true);
    return {Variable(), Variable()};
  }
};

}  // namespace

at::Tensor Embedding::operator()(const at::Tensor& ids) const {
  return Lookup::apply(weight, ids);
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return Product::apply(x, this);
}

at::Tensor Head::operator()(const at::Tensor& x) const {
  return HeadProduct::apply(x, this);
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, epsilon);
}

at::Tensor RmsNorm::operator()(const at::Tensor& x) const {
  return at::rms_norm(x, weight.sizes(), weight, epsilon);
}

bool LayerMaker::NextIs(const std::string& name) const {
  return !done() && wanted_[parameters_.size()].Name() == name;
}

at::Tensor LayerMaker::FirstValue(const model::Parameter& parameter,
                                  const std::string& name) const {
  const auto [mean, deviation] = parameter.initial;
  const model::Shape& shape = parameter.shape;
  std::vector<int64_t> sizes = {shape.rows};
  if (shape.is_matrix()) sizes.push_back(shape.columns);
  if (first_values_.kind == FirstValues::Kind::kZeros) {
    return at::zeros(sizes, at::TensorOptions(at::kFloat).device(device_));
  }
  if (deviation == 0) return at::full(sizes, mean, at::kFloat);
  if (first_values_.kind == FirstValues::Kind::kAny) {
    return at::empty(sizes, device_).normal_(mean, deviation);
  }
  LH_CHECK(mean == 0, "{}: normal numbers around {} are not made", name, mean);
  at::Tensor value = at::empty(sizes);
  FillNormal(first_values_.seed, name, deviation,
             std::span(value.data_ptr<float>(), static_cast<size_t>(value.numel())));
  return value;
}

at::Tensor LayerMaker::Make(const std::string& name, Use use) {
  LH_CHECK(NextIs(name), "{} is made where the model's descriptor has {}", name,
           done() ? "nothing more" : wanted_[parameters_.size()].Name());
  const model::Parameter& parameter = wanted_[parameters_.size()].parameter;
  LH_CHECK(use == Use::kLookedUp || parameter.in_product == (use == Use::kInProduct),
           "{} is used in another way than the model's descriptor says", name);
  const at::Tensor value = FirstValue(parameter, name).to(device_).set_requires_grad(true);
  parameters_.push_back(
      {.name = name,
       .value = value,
       .decays = parameter.decays(),
       .block_matrices = parameter.is_block_matrix() ? parameter.split.stacked : 0});
  return value;
}

Linear LayerMaker::MakeLinear(const std::string& name) {
  Linear linear;
  linear.weight = Make(name + ".weight", Use::kInProduct);
  linear.cast_weight = Cast(linear.weight, linear.weight.size(0));
  if (!NextIs(name + ".bias")) return linear;
  linear.bias = Make(name + ".bias", Use::kInProduct);
  linear.cast_bias = Cast(linear.bias, linear.bias.size(0));
  return linear;
}

Head LayerMaker::HeadOver(const at::Tensor& weight) {
  // Of bf16: 16 bytes.
  constexpr int64_t kAlignment = 8;
  const int64_t rows = weight.size(0);
  const bool aligned = device_.is_cuda() && compute_type_ == at::kBFloat16;
  return {weight, Cast(weight, aligned ? (rows + kAlignment - 1) / kAlignment * kAlignment : rows)};
}

LayerNorm LayerMaker::MakeLayerNorm(const std::string& name, double epsilon) {
  LayerNorm norm;
  norm.weight = Make(name + ".weight", Use::kInFp32);
  norm.bias = Make(name + ".bias", Use::kInFp32);
  norm.epsilon = epsilon;
  return norm;
}

RmsNorm LayerMaker::MakeRmsNorm(const std::string& name, double epsilon) {
  return {Make(name + ".weight", Use::kInFp32), epsilon};
}

at::Tensor LayerMaker::Cast(const at::Tensor& parameter, int64_t rows) {
  if (compute_type_ == at::kFloat) return parameter.detach();
  std::vector<int64_t> sizes = parameter.sizes().vec();
  sizes.front() = rows;
  at::Tensor whole = at::zeros(sizes, parameter.options().dtype(compute_type_));
  cast_.push_back(parameter);
  casts_.push_back(whole.narrow(0, 0, parameter.size(0)));
  casts_.back().copy_(parameter.detach());
  return whole;
}

Status LayerMaker::Load(const ReadParameter& read) const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& value = parameters_[i].value;
    const at::Tensor values = at::empty(value.sizes());
    LH_RETURN_IF_ERROR(
        read(wanted_[i], std::span(values.data_ptr<float>(), static_cast<size_t>(values.numel()))));
    value.detach().copy_(values);
  }
  RefreshCasts();
  return absl::OkStatus();
}

void LayerMaker::RefreshCasts() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < casts_.size(); ++i) casts_[i].copy_(cast_[i]);
}

}  // namespace longhaul::worker
