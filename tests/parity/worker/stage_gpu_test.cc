// Stages on a GPU do what stages on the CPU do, within what sums in another order make of it; and
// what one has learnt the other can go on with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/parity/worker/two_stages.h"
#include "tests/support/gpu_test.h"
#include "worker/stage/torch_cuda.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::OptionsOf;
using ::longhaul::testing::SmallModel;
using ::longhaul::testing::TwoStages;

class StageOnGpu : public ::testing::TestWithParam<SmallModel> {
 protected:
  static void SetUpTestSuite() {
    ::longhaul::testing::Gpu();
    const Status loaded = LoadTorchCuda(DefaultTorchCudaPath());
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
};

constexpr DeviceName kCpu{}, kGpu{0};

TEST_P(StageOnGpu, LearnsAsOnTheCpu) {
  TwoStages cpu(OptionsOf(GetParam(), kCpu)), gpu(OptionsOf(GetParam(), kGpu));
  double first = 0, last = 0;
  for (uint64_t step = 1; step <= 50; ++step) {
    const double there = cpu.Train(step), here = gpu.Train(step);
    ASSERT_TRUE(std::isfinite(here)) << step;
    ASSERT_NEAR(here, there, GetParam().tolerance) << step;
    if (step == 1) first = here;
    last = here;
  }
  EXPECT_LT(last, first - 1);
}

TEST_P(StageOnGpu, TheOtherDeviceGoesOn) {
  TwoStages cpu(OptionsOf(GetParam(), kCpu)), gpu(OptionsOf(GetParam(), kGpu));
  for (uint64_t step = 1; step <= 3; ++step) gpu.Train(step);
  cpu.TakeFrom(gpu);
  EXPECT_NEAR(cpu.Train(4), gpu.Train(4), GetParam().tolerance);
  gpu.TakeFrom(cpu);
  EXPECT_NEAR(cpu.Train(5), gpu.Train(5), GetParam().tolerance);
}

TEST_P(StageOnGpu, RepeatsItselfToTheBitWhereItIsTold) {
  const StageOptions options = OptionsOf(GetParam(), kGpu, /*deterministic=*/true);
  TwoStages once(options), again(options);
  for (uint64_t step = 1; step <= 20; ++step) EXPECT_EQ(once.Train(step), again.Train(step));
  const std::vector<NamedArray> one = once.Parameters(), other = again.Parameters();
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].values, other[i].values) << one[i].name;
}

TEST_P(StageOnGpu, DoesByGraphsWhatItDoesWithout) {
  StageOptions options = OptionsOf(GetParam(), kGpu, /*deterministic=*/true);
  TwoStages by_graphs(options);
  options.graphs = false;
  TwoStages without(options);
  for (uint64_t step = 1; step <= 10; ++step) EXPECT_EQ(by_graphs.Train(step), without.Train(step));
  by_graphs.TakeFrom(without);
  for (uint64_t step = 11; step <= 13; ++step)
    EXPECT_EQ(by_graphs.Train(step), without.Train(step));
  const std::vector<NamedArray> one = by_graphs.Parameters(), other = without.Parameters();
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].values, other[i].values) << one[i].name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, StageOnGpu,
    ::testing::Values(
        SmallModel{"gpt", ModelFamily::kGpt, ComputeDtype::kFp32, false, 2e-3},
        SmallModel{"gpt_recomputed", ModelFamily::kGpt, ComputeDtype::kFp32, true, 2e-3},
        SmallModel{"gpt_bf16", ModelFamily::kGpt, ComputeDtype::kBf16, false, 5e-2},
        SmallModel{"llama", ModelFamily::kLlama, ComputeDtype::kFp32, false, 2e-3},
        SmallModel{"llama_bf16", ModelFamily::kLlama, ComputeDtype::kBf16, false, 5e-2}),
    [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace longhaul::worker
