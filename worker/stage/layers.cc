#include "worker/stage/layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

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

void AddProductToGradient(const at::Tensor& parameter, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor& sum = parameter.mutable_grad();
  if (!a.is_cuda() || a.scalar_type() == at::kFloat) {
    AddToGradient(parameter, a.mm(b));
  } else if (sum.defined()) {
    at::addmm_out(sum, sum, a, b, at::kFloat);
  } else {
    sum = at::mm(a, b, at::kFloat);
  }
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
    const at::Tensor rows = gradients[0].reshape({-1, gradients[0].size(-1)});
    AddProductToGradient(layer->weight, rows.t(), input.reshape({-1, input.size(-1)}));
    if (layer->bias.defined()) AddToGradient(layer->bias, rows.sum(0));
    return {rows.mm(layer->cast_weight)
                .view(input.sizes())
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

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias);
}

at::Tensor RmsNorm::operator()(const at::Tensor& x) const {
  return at::rms_norm(x, weight.sizes(), weight, epsilon);
}

at::Tensor LayerMaker::Matrix(std::string name, int64_t rows, int64_t columns, double deviation) {
  at::Tensor value = at::zeros({rows, columns});
  FillNormal(seed_, name, deviation,
             std::span(value.data_ptr<float>(), static_cast<size_t>(value.numel())));
  return Add(std::move(name), std::move(value));
}

Linear LayerMaker::MakeLinear(const std::string& name, int64_t outputs, int64_t inputs,
                              double deviation, bool bias) {
  Linear linear = LinearOver(Matrix(name + ".weight", outputs, inputs, deviation));
  if (!bias) return linear;
  linear.bias = Add(name + ".bias", at::zeros({outputs}));
  linear.cast_bias = Cast(linear.bias);
  return linear;
}

Linear LayerMaker::LinearOver(const at::Tensor& weight) {
  return {.weight = weight, .bias = {}, .cast_weight = Cast(weight), .cast_bias = {}};
}

LayerNorm LayerMaker::MakeLayerNorm(const std::string& name, int64_t channels) {
  LayerNorm norm;
  norm.weight = Add(name + ".weight", at::ones({channels}));
  norm.bias = Add(name + ".bias", at::zeros({channels}));
  return norm;
}

RmsNorm LayerMaker::MakeRmsNorm(const std::string& name, int64_t channels, double epsilon) {
  return {Add(name + ".weight", at::ones({channels})), epsilon};
}

at::Tensor LayerMaker::Add(std::string name, at::Tensor value) {
  value = value.to(device_);
  value.set_requires_grad(true);
  parameters_.push_back({std::move(name), value});
  return value;
}

at::Tensor LayerMaker::Cast(const at::Tensor& parameter) {
  at::Tensor cast = parameter.detach().to(compute_type_);
  if (compute_type_ == at::kFloat) return cast;  // the same memory
  cast_.push_back(parameter);
  casts_.push_back(cast);
  return cast;
}

void LayerMaker::RefreshCasts() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < casts_.size(); ++i) casts_[i].copy_(cast_[i]);
}

}  // namespace longhaul::worker
