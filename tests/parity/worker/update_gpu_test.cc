// On a GPU what update_parity_test.cc does on the CPU. Muon's products are in bf16 here.
#include "tests/parity/worker/stage_on_gpu.h"
#include "tests/parity/worker/update_by_hand.h"
#include "worker/stage/optimizer/stochastic_rounding.h"

namespace longhaul::testing {
namespace {

class UpdateOnGpu : public UpdateByHand {
 protected:
  static void SetUpTestSuite() { LoadTorchCudaOrFail(); }
};

TEST_P(UpdateOnGpu, NormClippingAndUpdateAreThoseOfPlainLoops) {
  // The update's matrix products are in bf16, with 8 bits, and each of the five iterations makes
  // small singular values, and what was rounded of them, up to 3.4 times larger.
  Compare(kGpu, /*tolerance=*/0.15);
}

// With every kind of moments, too, whose random numbers are a GPU's own to compute.
TEST_P(UpdateOnGpu, RepeatsItselfToTheBit) {
  for (const MomentDtype moments : {MomentDtype::kFp32, MomentDtype::kBf16}) {
    const auto [family, kind] = GetParam();
    worker::StageOptions options =
        OptionsOf({.name = "small", .family = family}, kGpu, /*deterministic=*/true);
    options.train.optimizer.kind = kind;
    options.train.optimizer.moments = moments;
    StageChain once(options), again(options);
    for (uint64_t step = 1; step <= 10; ++step) EXPECT_EQ(once.Train(step), again.Train(step));
    ExpectSameParameters(once, again);
  }
}

TEST(StochasticRoundingOnGpu, HasTheCpusRandomNumbers) {
  LoadTorchCudaOrFail();
  const worker::StochasticRounding rounding(7, 12, "h.3.mlp.fc.weight");
  const at::Device gpu(at::kCUDA, 0), cpu(at::kCPU);
  for (const int64_t begin : {int64_t{0}, int64_t{1} << 36}) {
    EXPECT_TRUE(rounding.Bits(begin, 100'003, gpu).cpu().equal(rounding.Bits(begin, 100'003, cpu)));
  }
}

INSTANTIATE_TEST_SUITE_P(Updates, UpdateOnGpu, AllUpdates(), NameOfUpdate);

}  // namespace
}  // namespace longhaul::testing
