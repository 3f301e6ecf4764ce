#include "tests/support/reference_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <optional>
#include <span>
#include <utility>

#include "base/hash.h"
#include "base/philox.h"

namespace longhaul::testing {
namespace {

using at::Tensor;

// Linear warm-up, then the schedule's curve down to final_ratio at the last step.
double RateOf(const TrainSpec& train, uint64_t step) {
  const LrScheduleSpec& schedule = train.schedule;
  const double top = train.optimizer.lr, bottom = schedule.final_ratio * top;
  const auto at = static_cast<double>(step), warmup = static_cast<double>(schedule.warmup),
             last = static_cast<double>(train.steps);
  if (at <= warmup) return top * at / warmup;
  if (last <= warmup || schedule.kind == LrScheduleKind::kConstant) return top;
  double begin = warmup;
  if (schedule.kind == LrScheduleKind::kWsd) {
    const auto decay = static_cast<double>(schedule.DecaySteps(train.steps));
    begin = std::max(warmup, last - decay);
    if (at <= begin || begin == last) return top;
  }
  const double progress = std::min(1.0, (at - begin) / (last - begin));
  if (schedule.kind == LrScheduleKind::kCosine) {
    return bottom + (top - bottom) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  }
  return top + (bottom - top) * progress;
}

// The orthogonal matrices nearest to those of `x` (matrices, rows, columns), nearly: five of
// Jordan's quintic iterations X <- a X + (b X X' + c (X X')^2) X.
Tensor Orthogonal(Tensor x) {
  const bool tall = x.size(1) > x.size(2);
  x = x / (at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2}, /*keepdim=*/true) + 1e-7);
  if (tall) x = x.mT().contiguous();
  for (int i = 0; i < 5; ++i) {
    const Tensor square = at::bmm(x, x.mT());
    const Tensor polynomial = at::baddbmm(square, square, square, -4.7750, 2.0315);
    x = at::baddbmm(x, polynomial, x, 3.4445, 1);
  }
  return tall ? x.mT() : x;
}

}  // namespace

ReferenceOptimizer::ReferenceOptimizer(const TrainSpec& train,
                                       std::vector<ReferenceParameter> parameters)
    : train_(train), parameters_(std::move(parameters)) {
  const auto dtype = train.optimizer.moments == MomentDtype::kBf16 ? at::kBFloat16 : at::kFloat;
  for (const ReferenceParameter& parameter : parameters_) {
    const Tensor zeros = at::zeros_like(parameter.value.detach()).to(dtype);
    states_.push_back({zeros, zeros.clone()});
  }
}

double ReferenceOptimizer::Step(uint64_t step) {
  const at::NoGradGuard no_grad;
  double squared_norm = 0;
  for (const ReferenceParameter& parameter : parameters_) {
    squared_norm += parameter.value.grad().to(at::kDouble).square().sum().item<double>();
  }
  const double clip = train_.optimizer.clip_norm, norm = std::sqrt(squared_norm);
  // As torch.nn.utils.clip_grad_norm_.
  const double scale = clip == 0 ? 1 : std::min(1.0, clip / (norm + 1e-6));
  const double rate = RateOf(train_, step);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const bool muon = train_.optimizer.kind == OptimizerKind::kMuon && parameters_[i].matrices > 0;
    muon ? StepMuon(i, step, rate, scale) : StepAdamW(i, step, rate, scale);
  }
  return squared_norm;
}

void ReferenceOptimizer::StepAdamW(size_t i, uint64_t step, double rate, double scale) {
  const OptimizerSpec& spec = train_.optimizer;
  const Tensor value = parameters_[i].value.detach();
  const double decay = value.dim() >= 2 ? spec.weight_decay : 0;  // of matrices alone
  Tensor first = states_[i].first.to(at::kFloat), second = states_[i].second.to(at::kFloat);
  // The operator divides gradients by a factor, as mixed precision does.
  std::optional<Tensor> divisor;
  if (scale != 1) divisor = at::scalar_tensor(1 / scale, at::kFloat);
  at::_fused_adamw_({value}, {parameters_[i].value.grad().contiguous()}, {first}, {second}, {},
                    {at::scalar_tensor(static_cast<double>(step), at::kFloat)}, rate, spec.beta1,
                    spec.beta2, decay, spec.epsilon, /*amsgrad=*/false, /*maximize=*/false,
                    divisor);
  states_[i].first = Store(i, step, first, 0);
  states_[i].second = Store(i, step, second, 16);
}

void ReferenceOptimizer::StepMuon(size_t i, uint64_t step, double rate, double scale) {
  const OptimizerSpec& spec = train_.optimizer;
  const Tensor value = parameters_[i].value.detach();
  const Tensor gradient = parameters_[i].value.grad() * scale;
  const Tensor momentum = states_[i].first.to(at::kFloat) * spec.momentum + gradient;
  const Tensor update = at::add(gradient, momentum, spec.momentum);  // Nesterov's
  const Tensor matrices = update.unflatten(0, {parameters_[i].matrices, -1});
  const auto longer = static_cast<double>(std::max(matrices.size(1), matrices.size(2)));
  value.mul_(1 - rate * spec.weight_decay);
  value.add_(Orthogonal(matrices).flatten(0, 1), -rate * (0.2 * std::sqrt(longer)));
  states_[i].first = Store(i, step, momentum, 0);
}

// Returns `state` as it is kept: in bf16 it is rounded away from zero with the probability of what
// is dropped. `shift` says which bits of a random word decide.
Tensor ReferenceOptimizer::Store(size_t i, uint64_t step, const Tensor& state, int shift) const {
  if (train_.optimizer.moments != MomentDtype::kBf16) return state;
  const std::string key = "rounding of moments " + std::to_string(train_.seed) + " " +
                          std::to_string(step) + " " + parameters_[i].name;
  const uint64_t hash = Checksum64(std::as_bytes(std::span(key)));
  Tensor kept = state.contiguous().clone();
  auto* const values = kept.data_ptr<float>();
  for (int64_t at = 0; at < kept.numel(); ++at) {
    const auto block = static_cast<uint64_t>(at / 4);
    const Philox::Counter words =
        Philox::Generate({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                         {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)});
    const uint32_t random = (words[static_cast<size_t>(at % 4)] >> shift) & 0xFFFF;
    values[at] = std::bit_cast<float>((std::bit_cast<uint32_t>(values[at]) + random) & ~0xFFFFu);
  }
  return kept.to(at::kBFloat16);
}

}  // namespace longhaul::testing
