// Muon beside its formulas in double precision, written out as loops.
#include "worker/stage/optimizer/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/plain_muon.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/model/init.h"

namespace longhaul::worker {
namespace {

using testing::NewtonSchulz;
using testing::Plain;
using testing::PlainMuonStep;
using testing::PlainZeros;

at::Tensor Normal(const std::string& name, at::IntArrayRef shape, double deviation) {
  at::Tensor tensor = at::zeros(shape);
  FillNormal(1, name, deviation,
             std::span(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())));
  return tensor;
}

// `matrix` of the stacked ones.
Plain PlainOf(const at::Tensor& stacked, size_t matrices, size_t matrix) {
  return testing::PlainOf(stacked.const_data_ptr<float>(), static_cast<size_t>(stacked.size(0)),
                          static_cast<size_t>(stacked.size(1)), matrices, matrix);
}

TEST(Orthogonalized, EqualsTheIterationInDouble) {
  UseTorchThreads(2);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{24, 24}, {16, 40}, {40, 16}}) {
    const at::Tensor one = Normal("one", {rows, columns}, 1);
    const at::Tensor two = Normal("two", {rows, columns}, 1e-6);
    const at::Tensor both = Orthogonalized(at::stack({one, two}), at::kFloat);
    for (const int64_t which : {0, 1}) {
      const Plain expected = NewtonSchulz(PlainOf(which == 0 ? one : two, 1, 0));
      const at::Tensor own = both[which].contiguous();
      for (size_t i = 0; i < expected.values.size(); ++i) {
        ASSERT_NEAR(own.const_data_ptr<float>()[i], expected.values[i], 2e-5) << rows << " " << i;
      }
    }
  }
}

// Nearly the polar factor: of a U S V' with known singular values the result is U f(S) V', with
// f(S) in the band that the coefficients have.
TEST(Orthogonalized, TakesSingularValuesToAboutOne) {
  constexpr int64_t kSize = 12;
  // A Householder reflection is orthogonal.
  const auto reflection = [](const std::string& name) {
    const at::Tensor v = Normal(name, {kSize, 1}, 1).to(at::kDouble);
    at::Tensor matrix = v.matmul(v.t()) * (-2.0 / v.square().sum().item<double>());
    matrix.diagonal().add_(1);
    return matrix;
  };
  const at::Tensor u = reflection("u"), v = reflection("v");
  at::Tensor singular = at::zeros({kSize, kSize}, at::kDouble);
  for (int64_t i = 0; i < kSize; ++i) singular[i][i] = 1.0 - 0.08 * static_cast<double>(i);
  const at::Tensor matrix = u.matmul(singular).matmul(v).to(at::kFloat);
  const at::Tensor found =
      u.t()
          .matmul(Orthogonalized(matrix.unsqueeze(0), at::kFloat)[0].to(at::kDouble))
          .matmul(v.t());
  for (int64_t i = 0; i < kSize; ++i) {
    for (int64_t j = 0; j < kSize; ++j) {
      const double value = found[i][j].item<double>();
      if (i == j) {
        EXPECT_GT(value, 0.68) << i;
        EXPECT_LT(value, 1.14) << i;
      } else {
        EXPECT_NEAR(value, 0, 1e-5) << i << ", " << j;
      }
    }
  }
}

// As GPUs compute it.
TEST(Orthogonalized, InBf16IsNearTheIterationInDouble) {
  UseTorchThreads(2);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{64, 64}, {256, 64}, {48, 128}}) {
    const at::Tensor matrix = Normal("one", {rows, columns}, 1);
    const at::Tensor found = Orthogonalized(matrix.unsqueeze(0), at::kBFloat16)[0].contiguous();
    const Plain expected = NewtonSchulz(PlainOf(matrix, 1, 0));
    double difference = 0, size = 0;
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const double value = expected.values[i], off = found.const_data_ptr<float>()[i] - value;
      difference += off * off;
      size += value * value;
    }
    RecordProperty(fmt::format("{}x{}", rows, columns),
                   fmt::format("{}", std::sqrt(difference / size)));
    EXPECT_LT(std::sqrt(difference / size), 0.03) << rows << " x " << columns;
  }
}

TEST(Orthogonalized, ZerosStayZeros) {
  EXPECT_EQ(Orthogonalized(at::zeros({2, 5, 3}), at::kFloat).abs().max().item<float>(), 0);
}

struct PlainMuon {
  std::vector<Plain> values, momenta;

  PlainMuon(const at::Tensor& start, size_t matrices) {
    for (size_t m = 0; m < matrices; ++m) {
      values.push_back(PlainOf(start, matrices, m));
      momenta.push_back(PlainZeros(values.back().rows, values.back().columns));
    }
  }
  void Step(const OptimizerSpec& spec, double lr, double scale, const at::Tensor& gradient) {
    for (size_t m = 0; m < values.size(); ++m) {
      Plain scaled = PlainOf(gradient, values.size(), m);
      for (double& value : scaled.values) value *= scale;
      PlainMuonStep({.lr = lr, .weight_decay = spec.weight_decay, .momentum = spec.momentum},
                    scaled, &values[m], &momenta[m]);
    }
  }
};

TEST(Muon, FollowsItsFormulaMatrixByMatrix) {
  UseTorchThreads(2);
  TrainSpec train;
  train.optimizer.kind = OptimizerKind::kMuon;
  train.optimizer.weight_decay = 0.5;
  train.optimizer.momentum = 0.9;
  const std::vector<Parameter> parameters = {
      {"wide", Normal("w", {10, 30}, 1).set_requires_grad(true), true, /*block_matrices=*/1},
      {"qkv", Normal("q", {3 * 14, 14}, 1).set_requires_grad(true), true, 3},
      {"tall", Normal("t", {40, 9}, 1).set_requires_grad(true), true, 1}};
  std::vector<PlainMuon> expected;
  for (const Parameter& parameter : parameters) {
    expected.emplace_back(parameter.value.detach(), parameter.block_matrices);
  }
  Muon optimizer(train, parameters);
  for (int step = 1; step <= 6; ++step) {
    const double lr = 0.01 * step, scale = step == 2 ? 1.0 : 0.3;
    for (size_t p = 0; p < parameters.size(); ++p) {
      const at::Tensor gradient =
          Normal(parameters[p].name + std::to_string(step), parameters[p].value.sizes(), 0.1);
      expected[p].Step(train.optimizer, lr, scale, gradient);
      parameters[p].value.mutable_grad() = gradient;
    }
    optimizer.Step(static_cast<uint64_t>(step), lr, scale);
    for (size_t p = 0; p < parameters.size(); ++p) {
      EXPECT_EQ(optimizer.moments()[p].name, parameters[p].name + ".momentum");
      const size_t matrices = parameters[p].block_matrices;
      for (size_t m = 0; m < matrices; ++m) {
        const Plain value = PlainOf(parameters[p].value.detach(), matrices, m);
        const Plain momentum = PlainOf(optimizer.moments()[p].value, matrices, m);
        for (size_t i = 0; i < value.values.size(); ++i) {
          ASSERT_NEAR(value.values[i], expected[p].values[m].values[i], 2e-5);
          ASSERT_NEAR(momentum.values[i], expected[p].momenta[m].values[i], 1e-6);
        }
      }
    }
  }
}

// What is no matrix of a block goes AdamW's way, to the bit.
TEST(Muon, LeavesTheRestToAdamW) {
  UseTorchThreads(1);
  TrainSpec train;
  train.optimizer.kind = OptimizerKind::kMuon;
  const auto rest = [] {
    return std::vector<Parameter>{
        {"wte", Normal("e", {40, 8}, 1).set_requires_grad(true), /*decays=*/true},
        {"norm", Normal("n", {8}, 1).set_requires_grad(true)}};
  };
  const std::vector<Parameter> alone = rest();
  std::vector<Parameter> all = rest();
  all.insert(all.begin() + 1,
             {"w", Normal("w", {8, 8}, 1).set_requires_grad(true), true, /*block_matrices=*/1});
  AdamW adamw(train, alone);
  const std::unique_ptr<Optimizer> muon = Optimizer::Create(train, all);
  for (uint64_t step = 1; step <= 3; ++step) {
    for (const std::vector<Parameter>* parameters : {&alone, &std::as_const(all)}) {
      for (const Parameter& parameter : *parameters) {
        parameter.value.mutable_grad() = Normal("g", parameter.value.sizes(), 0.1);
      }
    }
    adamw.Step(step, 1e-2, 0.5);
    muon->Step(step, 1e-2, 0.5);
  }
  EXPECT_TRUE(all[0].value.equal(alone[0].value));
  EXPECT_TRUE(all[2].value.equal(alone[1].value));
  ASSERT_EQ(muon->moments().size(), 5u);
  EXPECT_EQ(muon->moments()[0].name, "w.momentum");
  EXPECT_EQ(muon->moments()[1].name, "wte.exp_avg");
}

}  // namespace
}  // namespace longhaul::worker
