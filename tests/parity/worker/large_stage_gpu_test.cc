// At the shapes of large models a GPU's losses and the gradient of each parameter are the CPU's:
// whole tensors, and the rows of embedding and head at the end of an odd vocabulary.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/parity/worker/stage_on_gpu.h"

namespace longhaul::testing {
namespace {

constexpr uint32_t kHidden = 1600, kVocabulary = 50257, kContext = 256, kMicrobatches = 2;
constexpr uint32_t kLastRows = 17;  // those after 785 tiles of 64

worker::StageOptions LargeOptions(const DeviceName& device, ComputeDtype dtype) {
  worker::StageOptions options;
  options.model.hidden = kHidden;
  options.model.heads = 25;
  options.model.layers = 2;
  options.model.context = kContext;
  options.layers = options.model.layers;
  options.vocabulary = kVocabulary;
  options.train.steps = 100;
  options.train.microbatches = kMicrobatches;
  options.train.dtype = dtype;
  options.device = device;
  options.threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  return options;
}

// From all of the vocabulary, its last rows often, and each of those several times.
std::vector<int32_t> Ids(uint64_t microbatch) {
  std::vector<int32_t> ids(kContext);
  uint64_t state = microbatch + 1;
  for (size_t i = 0; i < ids.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto random = static_cast<uint32_t>(state >> 33);
    ids[i] = static_cast<int32_t>(i % 4 == 0 ? kVocabulary - 1 - random % kLastRows
                                             : random % kVocabulary);
  }
  return ids;
}

struct Learnt {
  std::vector<double> losses;                 // of each step, before its update
  std::vector<worker::NamedArray> gradients;  // of the first step
};

Learnt Learn(const worker::StageOptions& options) {
  constexpr uint64_t kSteps = 4;
  const std::unique_ptr<worker::Stage> stage = Must(worker::Stage::Create(options));
  Learnt learnt;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    double loss = 0;
    for (uint32_t i = 0; i < kMicrobatches; ++i) {
      const std::vector<int32_t> ids = Ids(i), targets = Ids(kMicrobatches + i);
      Must(stage->Forward(Microbatch(i), {.tokens = ids, .activation = {}, .targets = targets}));
      loss += Must(stage->Loss(Microbatch(i)));
    }
    for (uint32_t i = 0; i < kMicrobatches; ++i) Must(stage->Backward(Microbatch(i), {}));
    const Status updated = stage->OptimizerStep(Step(step), 3e-4, /*gradient_scale=*/1);
    EXPECT_TRUE(updated.ok()) << updated;
    learnt.losses.push_back(loss / kMicrobatches);
    if (step > 1) continue;
    // What the first step leaves of a gradient is its share in the moving average.
    for (worker::NamedArray& moment : Must(stage->Snapshot()).moments) {
      const size_t suffix = moment.name.rfind(".exp_avg");
      if (moment.name.substr(suffix) != ".exp_avg") continue;  // the squares'
      moment.name.resize(suffix);
      for (float& value : moment.values) {
        value /= static_cast<float>(1 - options.train.optimizer.beta1);
      }
      learnt.gradients.push_back(std::move(moment));
    }
  }
  return learnt;
}

double RelativeError(std::span<const float> values, std::span<const float> reference) {
  double error = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(double{values[i]} - reference[i], 2);
    size += std::pow(double{reference[i]}, 2);
  }
  return std::sqrt(error / size);
}

struct Case {
  std::string name;
  ComputeDtype dtype = ComputeDtype::kFp32;
  Recompute recompute = Recompute::kNone;
  // Relative.
  double gradient_tolerance = 0, loss_tolerance = 0;
};

class LargeStageOnGpu : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { LoadTorchCudaOrFail(); }

  // In fp32, computed once.
  static const Learnt& OnCpu() {
    static const Learnt learnt = Learn(LargeOptions(kCpu, ComputeDtype::kFp32));
    return learnt;
  }
};

TEST_P(LargeStageOnGpu, HasTheGradientsAndLossesOfTheCpu) {
  const Case& test = GetParam();
  worker::StageOptions options = LargeOptions(kGpu, test.dtype);
  options.recompute = test.recompute;
  const Learnt& cpu = OnCpu();
  const Learnt gpu = Learn(options);

  ASSERT_EQ(gpu.gradients.size(), cpu.gradients.size());
  int tables = 0;
  for (size_t i = 0; i < gpu.gradients.size(); ++i) {
    const worker::NamedArray &here = gpu.gradients[i], &there = cpu.gradients[i];
    ASSERT_EQ(here.name, there.name);
    ASSERT_EQ(here.shape, there.shape);
    const std::span<const float> values(here.values), reference(there.values);
    const double error = RelativeError(values, reference);
    fmt::print("{:32} {:.1e}\n", here.name, error);
    EXPECT_LT(error, test.gradient_tolerance) << here.name;
    if (here.shape[0] != kVocabulary) continue;
    ++tables;
    for (uint32_t row = kVocabulary - kLastRows; row < kVocabulary; ++row) {
      const auto row_of = [&](auto all) { return all.subspan(size_t{row} * kHidden, kHidden); };
      EXPECT_LT(RelativeError(row_of(values), row_of(reference)), 2 * test.gradient_tolerance)
          << here.name << " row " << row;
    }
  }
  EXPECT_EQ(tables, 2);  // embedding and head
  for (size_t step = 0; step < gpu.losses.size(); ++step) {
    fmt::print("loss {:.6f}, on the CPU {:.6f}\n", gpu.losses[step], cpu.losses[step]);
    EXPECT_NEAR(gpu.losses[step], cpu.losses[step], test.loss_tolerance * cpu.losses[step]) << step;
  }
  EXPECT_LT(gpu.losses.back(), gpu.losses.front() - 1);
}

INSTANTIATE_TEST_SUITE_P(
    Dtypes, LargeStageOnGpu,
    ::testing::Values(Case{"fp32", ComputeDtype::kFp32, Recompute::kNone, 1e-4, 1e-4},
                      Case{"bf16", ComputeDtype::kBf16, Recompute::kNone, 3e-2, 1e-2},
                      Case{"bf16_recomputed", ComputeDtype::kBf16, Recompute::kStage, 5e-2, 1e-2},
                      Case{"bf16_by_blocks", ComputeDtype::kBf16, Recompute::kBlocks, 5e-2, 1e-2}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace longhaul::testing
