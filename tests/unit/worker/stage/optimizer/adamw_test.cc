#include "worker/stage/optimizer/adamw.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "worker/stage/device/torch_scope.h"
#include "worker/stage/model/init.h"
#include "worker/stage/optimizer/gradient_norm.h"

namespace longhaul::worker {
namespace {

at::Tensor Numbers(const char* name, at::IntArrayRef shape, double deviation) {
  at::Tensor tensor = at::zeros(shape);
  FillNormal(1, name, deviation,
             std::span(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())));
  return tensor;
}

// AdamW as its authors state it, in double.
struct Expected {
  std::vector<double> value, m, v;

  explicit Expected(const at::Tensor& start)
      : value(start.const_data_ptr<float>(), start.const_data_ptr<float>() + start.numel()),
        m(value.size()),
        v(value.size()) {}

  void Step(const OptimizerSpec& spec, double decay, int step, double lr, double scale,
            const at::Tensor& gradient) {
    for (size_t i = 0; i < value.size(); ++i) {
      const double g = gradient.const_data_ptr<float>()[i] * scale;
      m[i] = spec.beta1 * m[i] + (1 - spec.beta1) * g;
      v[i] = spec.beta2 * v[i] + (1 - spec.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(spec.beta1, step));
      const double v_hat = v[i] / (1 - std::pow(spec.beta2, step));
      value[i] -= lr * (m_hat / (std::sqrt(v_hat) + spec.epsilon) + decay * value[i]);
    }
  }
};

TEST(AdamW, FollowsItsFormulaWithDecayWhereThatIsSaid) {
  UseTorchThreads(1);
  TrainSpec train;
  train.optimizer.weight_decay = 0.5;
  const OptimizerSpec& spec = train.optimizer;
  const std::vector<Parameter> parameters = {
      {"w", Numbers("w", {37, 19}, 1).set_requires_grad(true), /*decays=*/true},
      {"b", Numbers("b", {19}, 1).set_requires_grad(true)}};
  std::vector<Expected> expected;
  for (const Parameter& parameter : parameters) expected.emplace_back(parameter.value.detach());
  AdamW optimizer(train, parameters);
  for (int step = 1; step <= 5; ++step) {
    const double lr = 0.01 * step, scale = step == 2 ? 1.0 : 0.3;
    for (size_t i = 0; i < 2; ++i) {
      const at::Tensor gradient =
          Numbers(step % 2 == 0 ? "even" : "odd", parameters[i].value.sizes(), 0.1);
      expected[i].Step(spec, i == 0 ? spec.weight_decay : 0, step, lr, scale, gradient);
      parameters[i].value.mutable_grad() = gradient;
    }
    optimizer.Step(static_cast<uint64_t>(step), lr, scale);
    for (size_t i = 0; i < 2; ++i) {
      for (size_t j = 0; j < expected[i].value.size(); ++j) {
        ASSERT_NEAR(parameters[i].value.const_data_ptr<float>()[j], expected[i].value[j], 2e-6);
        ASSERT_NEAR(optimizer.moments()[2 * i].value.const_data_ptr<float>()[j], expected[i].m[j],
                    1e-7);
        ASSERT_NEAR(optimizer.moments()[2 * i + 1].value.const_data_ptr<float>()[j],
                    expected[i].v[j], 1e-7);
      }
    }
  }
}

TEST(AddSquaredGradients, SumsFromTheLastParameterToTheFirst) {
  // Sizes around the lanes and blocks of the sum.
  std::vector<Parameter> parameters;
  double expected = 0;
  for (const int64_t size : {1, 7, 8, 9, 65535, 65536, 65537, 200'000}) {
    const at::Tensor gradient = Numbers("g", {size}, 1);
    for (int64_t i = 0; i < size; ++i) {
      expected += static_cast<double>(gradient.const_data_ptr<float>()[i]) *
                  gradient.const_data_ptr<float>()[i];
    }
    parameters.push_back({"p", at::zeros({size}).set_requires_grad(true)});
    parameters.back().value.mutable_grad() = gradient;
  }
  UseTorchThreads(1);
  const double whole = AddSquaredGradients(parameters, 0).sum;
  EXPECT_NEAR(whole, expected, 1e-9 * expected);
  // Bit for bit: in two halves, and with more threads.
  const std::vector<Parameter> front(parameters.begin(), parameters.begin() + 3);
  const std::vector<Parameter> back(parameters.begin() + 3, parameters.end());
  const SquaredNorm both = AddSquaredGradients(front, AddSquaredGradients(back, 0).sum);
  EXPECT_EQ(both.sum, whole);
  // A part does not depend on what the others have.
  EXPECT_EQ(both.own, AddSquaredGradients(front, 0).sum);
  UseTorchThreads(3);
  EXPECT_EQ(AddSquaredGradients(parameters, 0).sum, whole);
}

}  // namespace
}  // namespace longhaul::worker
