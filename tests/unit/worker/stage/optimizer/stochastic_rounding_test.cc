#include "worker/stage/optimizer/stochastic_rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "worker/stage/device/torch_scope.h"

namespace longhaul::worker {
namespace {

using Half = StochasticRounding::Half;

const at::Device kHost(at::kCPU);

std::vector<int32_t> Words(const at::Tensor& bits) {
  const at::Tensor dense = bits.contiguous();
  const auto* words = dense.const_data_ptr<int32_t>();
  return {words, words + dense.numel()};
}

// What a GPU computes, here by the same operations on the CPU.
TEST(StochasticRounding, TensorsGiveTheSameBitsAsPhilox) {
  UseTorchThreads(2);
  const StochasticRounding rounding(7, 12, "h.3.mlp.fc.weight");
  for (const int64_t begin : {int64_t{0}, int64_t{4096}, int64_t{1} << 36}) {
    for (const int64_t count : {1, 3, 4, 1021, 100'000}) {
      EXPECT_EQ(Words(rounding.BitsByTensors(begin, count, kHost)),
                Words(rounding.Bits(begin, count, kHost)))
          << begin << ", " << count;
    }
  }
}

TEST(StochasticRounding, BitsAreOfSeedStepNameAndElement) {
  const auto words = [](uint64_t seed, uint64_t step, const char* name, int64_t begin) {
    return Words(StochasticRounding(seed, step, name).Bits(begin, 1000, kHost));
  };
  const std::vector<int32_t> one = words(1, 2, "w", 0);
  EXPECT_EQ(words(1, 2, "w", 0), one);
  EXPECT_NE(words(2, 2, "w", 0), one);
  EXPECT_NE(words(1, 3, "w", 0), one);
  EXPECT_NE(words(1, 2, "v", 0), one);
  // Pieces are parts of the whole.
  const std::vector<int32_t> later = words(1, 2, "w", 400);
  EXPECT_EQ(std::vector(later.begin(), later.begin() + 600),
            std::vector(one.begin() + 400, one.end()));
}

TEST(StochasticRounding, KeepsTheMean) {
  constexpr int64_t kCount = 1 << 18;
  // bf16 has 1.0 and 1.0078125; this lies at three tenths between them.
  for (const double sign : {1.0, -1.0}) {
    const double exact = sign * (1 + 0.3 / 128);
    for (const Half half : {Half::kLow, Half::kHigh}) {
      const at::Tensor values = at::full({kCount}, exact, at::kFloat);
      const at::Tensor rounded = at::empty({kCount}, at::kBFloat16);
      StochasticRounding::Round(values, StochasticRounding(1, 1, "w").Bits(0, kCount, kHost), half,
                                rounded);
      const at::Tensor wide = rounded.to(at::kDouble);
      EXPECT_EQ(wide.abs().min().item<double>(), 1.0);
      EXPECT_EQ(wide.abs().max().item<double>(), 1.0078125);
      // Five standard deviations.
      EXPECT_NEAR(wide.mean().item<double>(), exact, 5 * 0.46 / 128 / std::sqrt(kCount));
    }
  }
}

TEST(StochasticRounding, LeavesAloneWhatBf16Has) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f, -0.0f, 1.0f, -1.5f, 0x1p-126f, 3e38f, kInfinite, -kInfinite};
  values[5] = std::ldexp(1.9921875f, 127);  // bf16's largest
  const std::vector<float> before = values;
  const auto count = static_cast<int64_t>(values.size());
  const at::Tensor rounded = at::empty({count}, at::kBFloat16);
  StochasticRounding(3, 3, "w").RoundAll(at::from_blob(values.data(), {count}), rounded);
  const at::Tensor wide = rounded.to(at::kFloat);
  for (int64_t i = 0; i < count; ++i) {
    EXPECT_EQ(wide.const_data_ptr<float>()[i], before[static_cast<size_t>(i)]);
  }
}

// A second moment that decays by 1/1000 a step, which bf16 cannot say.
TEST(StochasticRounding, SmallStepsAddUp) {
  constexpr int64_t kCount = 4096;
  const at::Tensor kept = at::full({kCount}, 1.0, at::kBFloat16);
  const at::Tensor nearest = kept.clone();
  for (uint64_t step = 1; step <= 500; ++step) {
    StochasticRounding(1, step, "w").RoundAll(kept.to(at::kFloat) * 0.999, kept);
    nearest.copy_(nearest.to(at::kFloat) * 0.999);
  }
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), std::pow(0.999, 500), 0.005);
  EXPECT_EQ(nearest.to(at::kDouble).mean().item<double>(), 1.0) << "no rounding would be needed";
}

}  // namespace
}  // namespace longhaul::worker
