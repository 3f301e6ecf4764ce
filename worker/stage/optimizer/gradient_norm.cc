#include "worker/stage/optimizer/gradient_norm.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace longhaul::worker {
namespace {

// Values that one thread sums at once; part of the order of sums.
constexpr int64_t kSumBlock = 1 << 16;

double SumOfSquares(const float* values, int64_t count) {
  std::array<double, 8> lanes{};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) lanes[0] += static_cast<double>(values[i]) * values[i];
  return std::accumulate(lanes.begin(), lanes.end(), 0.0);
}

double SumOfSquares(const at::Tensor& gradient) {
  const at::Tensor dense = gradient.contiguous();
  const float* values = dense.const_data_ptr<float>();
  const int64_t count = dense.numel();
  std::vector<double> partial(static_cast<size_t>((count + kSumBlock - 1) / kSumBlock));
  at::parallel_for(0, static_cast<int64_t>(partial.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t offset = block * kSumBlock;
      partial[block] = SumOfSquares(values + offset, std::min(kSumBlock, count - offset));
    }
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

// On a GPU: of each parameter in double by LibTorch's reduction, which has one order for a shape;
// they come to the host together. It makes doubles of all that it is given: of parts, therefore.
constexpr int64_t kDeviceSumBlock = int64_t{1} << 22;

std::vector<double> SquaresOnDevice(const std::vector<Parameter>& parameters) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> squares;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    if (it->counted_elsewhere || !it->value.grad().defined()) continue;
    for (const at::Tensor& part : it->value.grad().reshape({-1}).split(kDeviceSumBlock)) {
      squares.push_back(
          at::linalg_vector_norm(part, 2, at::OptionalIntArrayRef(), false, at::kDouble).square());
    }
  }
  if (squares.empty()) return {};
  const at::Tensor of_all = at::stack(squares).cpu();
  const double* const values = of_all.const_data_ptr<double>();
  return {values, values + of_all.numel()};
}

}  // namespace

void SumPartsOfGradients(const std::vector<Parameter>& parameters, const RankGroup& group) {
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters) {
    if (!parameter.summed.has_value() || !parameter.value.grad().defined()) continue;
    const at::Tensor& part = parameter.value.grad();
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes.front() = parameter.summed->whole_rows;
    const at::Tensor whole = at::zeros(sizes, part.options());
    whole.narrow(0, parameter.summed->first_row, part.size(0)).copy_(part);
    part.copy_(group.Sum(whole).narrow(0, parameter.summed->first_row, part.size(0)));
  }
}

SquaredNorm AddSquaredGradients(const std::vector<Parameter>& parameters, double sum) {
  SquaredNorm norm{.sum = sum};
  const auto add = [&norm](double squares) {
    norm.sum += squares;
    norm.own += squares;
  };
  if (!parameters.empty() && !parameters[0].value.is_cpu()) {
    std::ranges::for_each(SquaresOnDevice(parameters), add);
    return norm;
  }
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    if (it->counted_elsewhere || !it->value.grad().defined()) continue;
    add(SumOfSquares(it->value.grad()));
  }
  return norm;
}

}  // namespace longhaul::worker
