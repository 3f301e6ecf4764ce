// The end of a step beside plain loops in double precision: the norm of all gradients, clipping,
// and an update by AdamW and by Muon with weight decay. Of a whole stage, on whatever device.
//
// Gradients are read from a second stage with the same parameters: with beta1 = 0 AdamW's first
// moment is the gradient to the bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/parity/worker/small_model.h"
#include "tests/support/plain_muon.h"
#include "worker/stage/stage.h"

namespace longhaul::testing {

using UpdateCase = std::tuple<ModelFamily, OptimizerKind>;

// GTest's parameter of a suite on one device.
class UpdateByHand : public ::testing::TestWithParam<UpdateCase> {
 protected:
  static constexpr double kLr = 1e-2, kDecay = 0.5, kClip = 0.3, kBeta1 = 0.9, kBeta2 = 0.95,
                          kEpsilon = 1e-8, kMomentum = 0.95;
  static constexpr uint64_t kSteps = 3;

  // `tolerance`: of Muon's updates, as a share of their size.
  void Compare(const DeviceName& device, double tolerance) {
    options_ = Options(device);
    trained_ = Make(options_);
    worker::StageOptions plain = options_;
    plain.train.optimizer.kind = OptimizerKind::kAdamW;
    plain.train.optimizer.beta1 = 0;
    exporter_ = Make(plain);
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const worker::StageSnapshot before = trained_->Snapshot().value();
      const std::vector<worker::NamedArray> gradients = GradientsOf(before, step);
      RunPasses(*trained_, step);
      double squares = 0;
      for (const worker::NamedArray& gradient : gradients) {
        for (const float value : gradient.values) squares += double{value} * value;
      }
      const double norm = trained_->AddSquaredGradientNorm(0).value().sum;
      ASSERT_NEAR(norm, squares, 1e-9 * squares) << step;
      const double scale = kClip / (std::sqrt(squares) + 1e-6);
      ASSERT_LT(scale, 1) << "the test should clip";
      ASSERT_EQ(trained_->OptimizerStep(Step(step), kLr, worker::ClipScale(kClip, norm)),
                absl::OkStatus());
      const worker::StageSnapshot after = trained_->Snapshot().value();
      ASSERT_EQ(gradients.size(), before.parameters.size());
      for (size_t i = 0; i < gradients.size(); ++i) {
        ASSERT_EQ(gradients[i].name, before.parameters[i].name + ".exp_avg");
        const worker::NamedArray& value = before.parameters[i];
        if (std::get<1>(GetParam()) == OptimizerKind::kMuon && IsMuons(value)) {
          CompareMuon(value, gradients[i], after.parameters[i], scale, tolerance);
        } else {
          CompareAdamW(step, value, gradients[i], after.parameters[i], scale);
        }
      }
    }
  }

 private:
  static std::unique_ptr<worker::Stage> Make(const worker::StageOptions& options) {
    auto stage = worker::Stage::Create(options);
    EXPECT_TRUE(stage.ok()) << stage.status();
    return *std::move(stage);
  }
  static worker::StageOptions Options(const DeviceName& device) {
    worker::StageOptions options;
    options.model = SmallModelOf(std::get<0>(GetParam()));
    options.model.layers = options.layers = 1;
    options.vocabulary = 253;
    options.device = device;
    options.train.steps = kSteps;
    options.train.microbatches = 2;
    options.train.microbatch_size = 2;
    options.train.deterministic = true;  // both stages have the same gradients
    OptimizerSpec& optimizer = options.train.optimizer;
    optimizer.kind = std::get<1>(GetParam());
    optimizer.lr = kLr;
    optimizer.beta1 = kBeta1;
    optimizer.beta2 = kBeta2;
    optimizer.epsilon = kEpsilon;
    optimizer.weight_decay = kDecay;
    optimizer.momentum = kMomentum;
    return options;
  }

  void RunPasses(worker::Stage& stage, uint64_t step) const {
    for (uint32_t m = 0; m < 2; ++m) {
      std::vector<int32_t> ids(2 * 64), targets(ids.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<int32_t>((i * 31 + step * 17 + m * 5) % 253);
        targets[i] = (ids[i] * 5 + 3) % 253;
      }
      const auto output = stage.Forward(Microbatch(m), {ids, {}, targets});
      ASSERT_TRUE(output.ok()) << output.status();
    }
    for (uint32_t m = 0; m < 2; ++m) {
      const auto gradient = stage.Backward(Microbatch(m), {});
      ASSERT_TRUE(gradient.ok()) << gradient.status();
    }
  }

  // Gradients of the parameters in `start`, in their order, not clipped.
  std::vector<worker::NamedArray> GradientsOf(const worker::StageSnapshot& start, uint64_t step) {
    worker::StageSnapshot own = exporter_->Snapshot().value();
    own.parameters = start.parameters;
    own.step = start.step;
    EXPECT_EQ(exporter_->Restore(own), absl::OkStatus());
    RunPasses(*exporter_, step);
    EXPECT_EQ(exporter_->OptimizerStep(Step(step), kLr, 1), absl::OkStatus());
    std::vector<worker::NamedArray> gradients;
    worker::StageSnapshot after = exporter_->Snapshot().value();
    for (worker::NamedArray& moment : after.moments) {
      if (moment.name.ends_with(".exp_avg")) gradients.push_back(std::move(moment));
    }
    return gradients;
  }

  // By their names: matrices that are not of embedding, positions or head.
  static bool IsMuons(const worker::NamedArray& value) {
    if (value.shape.size() != 2) return false;
    const auto has = [&](const char* part) { return value.name.find(part) != std::string::npos; };
    return !has("wte") && !has("wpe") && !has("embed_tokens") && !has("lm_head");
  }

  void CompareAdamW(uint64_t step, const worker::NamedArray& before,
                    const worker::NamedArray& gradient, const worker::NamedArray& after,
                    double scale) {
    auto& [m, v] = moments_[before.name];
    m.resize(before.values.size());
    v.resize(before.values.size());
    const double decay = before.shape.size() == 2 ? kDecay : 0;
    const auto n = static_cast<double>(step);
    for (size_t i = 0; i < before.values.size(); ++i) {
      const double g = scale * gradient.values[i], value = before.values[i];
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * g;
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(kBeta1, n));
      const double v_hat = v[i] / (1 - std::pow(kBeta2, n));
      const double expected = value - kLr * (m_hat / (std::sqrt(v_hat) + kEpsilon) + decay * value);
      ASSERT_NEAR(after.values[i], expected, 3e-6)
          << before.name << " " << i << " of step " << step;
    }
  }

  void CompareMuon(const worker::NamedArray& before, const worker::NamedArray& gradient,
                   const worker::NamedArray& after, double scale, double tolerance) {
    const size_t matrices = before.name.find("attn.qkv") != std::string::npos ? 3 : 1;
    std::vector<Plain>& momenta = momenta_[before.name];
    momenta.resize(matrices);
    for (size_t k = 0; k < matrices; ++k) {
      const auto plain = [&](const worker::NamedArray& array) {
        return PlainOf(array.values.data(), static_cast<size_t>(array.shape[0]),
                       static_cast<size_t>(array.shape[1]), matrices, k);
      };
      Plain value = plain(before), scaled = plain(gradient);
      for (double& one : scaled.values) one *= scale;
      if (momenta[k].values.empty()) momenta[k] = PlainZeros(value.rows, value.columns);
      const Plain start = value;
      PlainMuonStep({.lr = kLr, .weight_decay = kDecay, .momentum = kMomentum}, scaled, &value,
                    &momenta[k]);
      const Plain found = plain(after);
      double off = 0, size = 0;
      for (size_t i = 0; i < value.values.size(); ++i) {
        off += std::pow(found.values[i] - value.values[i], 2);
        size += std::pow(value.values[i] - start.values[i], 2);
      }
      ASSERT_LE(std::sqrt(off), tolerance * std::sqrt(size)) << before.name << " " << k;
    }
  }

  worker::StageOptions options_;
  std::unique_ptr<worker::Stage> trained_, exporter_;
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> moments_;
  std::map<std::string, std::vector<Plain>> momenta_;
};

inline auto AllUpdates() {
  return ::testing::Combine(::testing::Values(ModelFamily::kGpt, ModelFamily::kLlama),
                            ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kMuon));
}

inline std::string NameOfUpdate(const ::testing::TestParamInfo<UpdateCase>& test) {
  return std::string(ToString(std::get<0>(test.param))) + "_" +
         std::string(ToString(std::get<1>(test.param)));
}

}  // namespace longhaul::testing
