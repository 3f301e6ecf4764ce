#include "worker/stage/optimizer/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <optional>
#include <string>

#include "worker/stage/optimizer/stochastic_rounding.h"

namespace longhaul::worker {

AdamW::AdamW(const TrainSpec& train, const std::vector<Parameter>& parameters)
    : spec_(train.optimizer), seed_(train.seed) {
  decaying_.weight_decay = spec_.weight_decay;
  const at::ScalarType dtype = ToTorch(spec_.moments);
  for (const Parameter& parameter : parameters) {
    (parameter.decays ? decaying_ : others_).members.push_back(parameters_.size());
    parameters_.push_back(parameter.value);
    names_.push_back(parameter.name);
    const at::Tensor value = parameter.value.detach();
    for (const std::string_view moment : {kExpAvg, kExpAvgSq}) {
      moments_.push_back({parameter.name + std::string(moment),
                          at::zeros_like(value, value.options().dtype(dtype))});
    }
  }
}

void AdamW::Step(uint64_t step, double learning_rate, double gradient_scale) {
  const at::NoGradGuard no_grad;
  if (parameters_.empty()) return;
  const at::TensorOptions scalar = at::TensorOptions(at::kFloat).device(parameters_[0].device());
  Arguments arguments{
      .step = step,
      .learning_rate = learning_rate,
      .step_tensor = at::scalar_tensor(static_cast<double>(step), scalar),
      .divisor = {},
  };
  // LibTorch divides: it comes from mixed precision's scaling.
  if (gradient_scale != 1) arguments.divisor = at::scalar_tensor(1.0 / gradient_scale, scalar);
  for (const Group* group : {&decaying_, &others_}) {
    if (group->members.empty()) continue;
    if (spec_.moments == MomentDtype::kBf16) {
      StepInPieces(*group, arguments);
    } else {
      StepInFp32(*group, arguments);
    }
  }
}

void AdamW::MoveTo(const std::vector<Parameter>& parameters) {
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i] = parameters[i].value;
}

void AdamW::StepInFp32(const Group& group, const Arguments& arguments) {
  std::vector<at::Tensor> values, gradients, exp_avgs, exp_avg_sqs;
  for (const size_t i : group.members) {
    values.push_back(parameters_[i]);
    gradients.push_back(parameters_[i].grad().contiguous());
    exp_avgs.push_back(moments_[2 * i].value);
    exp_avg_sqs.push_back(moments_[2 * i + 1].value);
  }
  Update(values, gradients, exp_avgs, exp_avg_sqs, group, arguments);
}

void AdamW::StepInPieces(const Group& group, const Arguments& arguments) {
  for (const size_t i : group.members) {
    const at::Tensor value = parameters_[i].detach().view({-1});
    const at::Tensor gradient = parameters_[i].grad().contiguous().view({-1});
    const at::Tensor exp_avg = moments_[2 * i].value.view({-1});
    const at::Tensor exp_avg_sq = moments_[2 * i + 1].value.view({-1});
    const StochasticRounding rounding(seed_, arguments.step, names_[i]);
    const int64_t piece = StochasticRounding::Piece(value.device());
    for (int64_t begin = 0; begin < value.numel(); begin += piece) {
      const int64_t count = std::min(piece, value.numel() - begin);
      const auto part = [&](const at::Tensor& whole) { return whole.narrow(0, begin, count); };
      const at::Tensor first = part(exp_avg).to(at::kFloat);
      const at::Tensor second = part(exp_avg_sq).to(at::kFloat);
      Update({part(value)}, {part(gradient)}, {first}, {second}, group, arguments);
      const at::Tensor bits = rounding.Bits(begin, count, value.device());
      StochasticRounding::Round(first, bits, StochasticRounding::Half::kLow, part(exp_avg));
      StochasticRounding::Round(second, bits, StochasticRounding::Half::kHigh, part(exp_avg_sq));
    }
  }
}

void AdamW::Update(const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& gradients,
                   const std::vector<at::Tensor>& exp_avgs,
                   const std::vector<at::Tensor>& exp_avg_sqs, const Group& group,
                   const Arguments& arguments) const {
  const std::vector<at::Tensor> steps(values.size(), arguments.step_tensor);
  std::optional<at::Tensor> divisor;
  if (arguments.divisor.defined()) divisor = arguments.divisor;
  at::_fused_adamw_(values, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps,
                    arguments.learning_rate, spec_.beta1, spec_.beta2, group.weight_decay,
                    spec_.epsilon, /*amsgrad=*/false, /*maximize=*/false, divisor);
}

}  // namespace longhaul::worker
