#include "worker/stage/optimizer/muon.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "worker/stage/group/rank_group.h"
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

Muon::Muon(const TrainSpec& train, const std::vector<Parameter>& parameters, const RankGroup* group)
    : spec_(train.optimizer),
      seed_(train.seed),
      group_(group),
      others_(train, OthersOf(parameters)) {
  const at::ScalarType dtype = ToTorch(spec_.moments);
  for (const Parameter& parameter : parameters) {
    if (parameter.block_matrices == 0) continue;
    const at::Tensor value = parameter.value.detach();
    const MatrixParts* const parts = parameter.parts.get();
    const int64_t stacked = parameter.block_matrices;
    matrices_.push_back({.name = parameter.name,
                         .value = parameter.value,
                         .stacked = stacked,
                         .rows = (parts != nullptr ? parts->rows() : value.size(0)) / stacked,
                         .columns = parts != nullptr ? parts->columns() : value.size(1),
                         .weight_decay = parameter.decays ? spec_.weight_decay : 0,
                         .momentum = at::zeros_like(value, value.options().dtype(dtype)),
                         .parts = parameter.parts});
    moments_.push_back({parameter.name + std::string(kMomentum), matrices_.back().momentum});
  }
  moments_.insert(moments_.end(), others_.moments().begin(), others_.moments().end());
  for (size_t i = 0; i < matrices_.size(); ++i) {
    if (matrices_[i].parts) in_parts_.push_back(i);
  }
  // Ranks compute at the same time, and matrices of one size take them equally long.
  std::ranges::stable_sort(in_parts_, std::ranges::greater(), [this](size_t i) {
    return matrices_[i].stacked * matrices_[i].rows * matrices_[i].columns;
  });
}

void Muon::Step(uint64_t step, double learning_rate, double gradient_scale) {
  const at::NoGradGuard no_grad;
  for (const Matrix& matrix : matrices_) {
    if (matrix.parts) continue;
    const at::Tensor sum = AddToMomentum(matrix, step, gradient_scale);
    Apply(matrix, OrthogonalOf(matrix, sum), learning_rate);
  }
  for (size_t first = 0; first < in_parts_.size(); first += group_->size()) {
    const size_t count = std::min<size_t>(group_->size(), in_parts_.size() - first);
    const std::span<const size_t> dealt = std::span(in_parts_).subspan(first, count);
    std::vector<PartOfMatrix> sums;
    for (const size_t i : dealt) {
      sums.push_back({matrices_[i].parts.get(), AddToMomentum(matrices_[i], step, gradient_scale)});
    }
    const std::vector<at::Tensor> orthogonal = ComputeWhole(
        *group_, sums,
        [&](size_t k, const at::Tensor& sum) { return OrthogonalOf(matrices_[dealt[k]], sum); });
    for (size_t k = 0; k < count; ++k) Apply(matrices_[dealt[k]], orthogonal[k], learning_rate);
  }
  others_.Step(step, learning_rate, gradient_scale);
}

void Muon::MoveTo(const std::vector<Parameter>& parameters) {
  size_t next = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.block_matrices > 0) matrices_[next++].value = parameter.value;
  }
  others_.MoveTo(OthersOf(parameters));
}

at::Tensor Muon::AddToMomentum(const Matrix& matrix, uint64_t step, double gradient_scale) const {
  at::Tensor sum = matrix.value.grad().mul(gradient_scale);
  const bool rounds = matrix.momentum.scalar_type() != at::kFloat;
  at::Tensor momentum = rounds ? matrix.momentum.to(at::kFloat) : matrix.momentum;
  momentum.mul_(spec_.momentum).add_(sum);
  sum.add_(momentum, spec_.momentum);
  if (rounds) StochasticRounding(seed_, step, matrix.name).RoundAll(momentum, matrix.momentum);
  return sum;
}

at::Tensor Muon::OrthogonalOf(const Matrix& matrix, const at::Tensor& sum) {
  return Orthogonalized(sum.view({matrix.stacked, matrix.rows, matrix.columns}),
                        sum.is_cpu() ? at::kFloat : at::kBFloat16)
      .reshape(sum.sizes());
}

void Muon::Apply(const Matrix& matrix, const at::Tensor& orthogonal, double learning_rate) {
  const double size =
      kUpdateSize * std::sqrt(static_cast<double>(std::max(matrix.rows, matrix.columns)));
  at::Tensor value = matrix.value.detach();
  value.mul_(1 - learning_rate * matrix.weight_decay);
  value.add_(orthogonal, -learning_rate * size);
}

}  // namespace longhaul::worker
