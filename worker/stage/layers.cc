#include "worker/stage/layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

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

// Rows that a GPU's products read and write in whole units of 16 bytes, whatever the number of
// columns: where rows follow each other, an odd number makes a product several times slower.
at::Tensor AlignedRows(int64_t rows, int64_t columns, const at::TensorOptions& options) {
  const auto unit = static_cast<int64_t>(16 / options.dtype().itemsize());
  return at::empty({rows, (columns + unit - 1) / unit * unit}, options).narrow(1, 0, columns);
}

at::Tensor Rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

// What autograd sees of a Linear; `wide`: of its Wide.
class Product : public torch::autograd::Function<Product> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Linear* layer,
                          bool wide) {
    const at::Tensor input = x.to(layer->cast_weight.scalar_type());
    context->save_for_backward({input});
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    context->saved_data["type"] = x.scalar_type();
    if (!wide) return at::linear(input, layer->cast_weight, layer->cast_bias);
    if (!input.is_cuda() || input.scalar_type() == at::kFloat || layer->bias.defined()) {
      return at::linear(input, layer->cast_weight, layer->cast_bias).to(at::kFloat);
    }
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = layer->weight.size(0);
    const at::Tensor rows = Rows(input);
    at::Tensor product = AlignedRows(rows.size(0), sizes.back(), rows.options());
    at::mm_out(product, rows, layer->cast_weight.t());
    return product.to(at::kFloat).view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const layer = reinterpret_cast<const Linear*>(  // NOLINT(performance-no-int-to-ptr)
        context->saved_data["layer"].toInt());
    const at::Tensor input = context->get_saved_variables()[0];
    const at::Tensor rows = InTypeOf(input, Rows(gradients[0]));
    AddProductToGradient(layer->weight, rows.t(), Rows(input));
    if (layer->bias.defined()) AddToGradient(layer->bias, rows.sum(0));
    return {rows.mm(layer->cast_weight)
                .view(input.sizes())
                .to(context->saved_data["type"].toScalarType()),
            Variable(), Variable()};
  }

 private:
  // `rows` in the type of `input`, which they are multiplied by.
  static at::Tensor InTypeOf(const at::Tensor& input, const at::Tensor& rows) {
    if (!rows.is_cuda() || rows.scalar_type() == input.scalar_type()) {
      return rows.to(input.scalar_type());
    }
    at::Tensor cast = AlignedRows(rows.size(0), rows.size(1), input.options());
    return cast.copy_(rows);
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
  return Product::apply(x, this, false);
}

at::Tensor Linear::Wide(const at::Tensor& x) const {
  return Product::apply(x, this, true);
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
