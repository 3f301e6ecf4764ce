#include "worker/stage/layers.h"

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "worker/stage/init.h"

namespace longhaul::worker {

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, weight, bias);
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
  Linear linear;
  linear.weight = Matrix(name + ".weight", outputs, inputs, deviation);
  if (bias) linear.bias = Add(name + ".bias", at::zeros({outputs}));
  return linear;
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

}  // namespace longhaul::worker
