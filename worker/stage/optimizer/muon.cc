#include "worker/stage/optimizer/muon.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "worker/stage/optimizer/stochastic_rounding.h"

namespace longhaul::worker {
namespace {

// The quintic that takes singular values in (0, 1] fastest to about 1 (Jordan et al.).
constexpr double kFirst = 3.4445, kThird = -4.7750, kFifth = 2.0315;
constexpr int kIterations = 5;
constexpr double kLeastNorm = 1e-7;
// Root mean square of AdamW's updates (Liu et al.).
constexpr double kUpdateSize = 0.2;

std::vector<Parameter> OthersOf(const std::vector<Parameter>& parameters) {
  std::vector<Parameter> others;
  for (const Parameter& parameter : parameters) {
    if (parameter.block_matrices == 0) others.push_back(parameter);
  }
  return others;
}

}  // namespace

at::Tensor Orthogonalized(const at::Tensor& matrices, at::ScalarType compute_type) {
  const at::NoGradGuard no_grad;
  // The product of a matrix with its transpose is the smaller one.
  const bool tall = matrices.size(1) > matrices.size(2);
  const at::Tensor norms =
      at::linalg_vector_norm(matrices, 2, at::IntArrayRef{1, 2}, /*keepdim=*/true);
  at::Tensor x = matrices.div(norms.add(kLeastNorm));
  if (tall) x = x.transpose(1, 2).contiguous();
  x = x.to(compute_type);
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor square = at::bmm(x, x.transpose(1, 2));
    const at::Tensor polynomial = at::baddbmm(square, square, square, kThird, kFifth);
    x = at::baddbmm(x, polynomial, x, kFirst, 1);
  }
  return (tall ? x.transpose(1, 2) : x).to(at::kFloat);
}

Muon::Muon(const TrainSpec& train, const std::vector<Parameter>& parameters)
    : spec_(train.optimizer), seed_(train.seed), others_(train, OthersOf(parameters)) {
  const at::ScalarType dtype = ToTorch(spec_.moments);
  for (const Parameter& parameter : parameters) {
    if (parameter.block_matrices == 0) continue;
    const at::Tensor value = parameter.value.detach();
    matrices_.push_back({.name = parameter.name,
                         .value = parameter.value,
                         .stacked = parameter.block_matrices,
                         .weight_decay = parameter.decays ? spec_.weight_decay : 0,
                         .momentum = at::zeros_like(value, value.options().dtype(dtype))});
    moments_.push_back({parameter.name + std::string(kMomentum), matrices_.back().momentum});
  }
  moments_.insert(moments_.end(), others_.moments().begin(), others_.moments().end());
}

void Muon::Step(uint64_t step, double learning_rate, double gradient_scale) {
  const at::NoGradGuard no_grad;
  for (const Matrix& matrix : matrices_) Update(matrix, step, learning_rate, gradient_scale);
  others_.Step(step, learning_rate, gradient_scale);
}

void Muon::MoveTo(const std::vector<Parameter>& parameters) {
  size_t next = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.block_matrices > 0) matrices_[next++].value = parameter.value;
  }
  others_.MoveTo(OthersOf(parameters));
}

void Muon::Update(const Matrix& matrix, uint64_t step, double learning_rate,
                  double gradient_scale) const {
  at::Tensor update = matrix.value.grad().mul(gradient_scale);
  {
    const bool rounds = matrix.momentum.scalar_type() != at::kFloat;
    at::Tensor momentum = rounds ? matrix.momentum.to(at::kFloat) : matrix.momentum;
    momentum.mul_(spec_.momentum).add_(update);
    update.add_(momentum, spec_.momentum);
    if (rounds) StochasticRounding(seed_, step, matrix.name).RoundAll(momentum, matrix.momentum);
  }
  const int64_t rows = matrix.value.size(0) / matrix.stacked, columns = matrix.value.size(1);
  const at::Tensor orthogonal = Orthogonalized(update.view({matrix.stacked, rows, columns}),
                                               update.is_cpu() ? at::kFloat : at::kBFloat16);
  const double size = kUpdateSize * std::sqrt(static_cast<double>(std::max(rows, columns)));
  at::Tensor value = matrix.value.detach();
  value.mul_(1 - learning_rate * matrix.weight_decay);
  value.add_(orthogonal.reshape(value.sizes()), -learning_rate * size);
}

}  // namespace longhaul::worker
