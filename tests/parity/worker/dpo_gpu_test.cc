// Direct preference optimization on a GPU: near the reference in fp64, and passes that are recorded
// give what passes give that are not, to the bit.
#include <cmath>
#include <string>
#include <vector>

#include "tests/parity/worker/dpo_cases.h"
#include "tests/parity/worker/stage_on_gpu.h"

namespace longhaul::worker {
namespace {

class DpoOnGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { testing::LoadTorchCudaOrFail(); }
};

TEST_F(DpoOnGpu, LossAndGradientsAreThoseOfTheReference) {
  for (const uint32_t slices : {1u, 2u}) {
    const DpoCase one{.name = "", .stages = 3, .slices = slices, .device = testing::kGpu};
    const StageOptions options = WholeOf(one);
    const DpoResult expected =
        DpoByHand(options.model, *options.train.dpo, AllValues(options, kB), AllPairs());
    ExpectNear(Chain(one, kB).Step(), expected, 1e-4);
  }
}

TEST_F(DpoOnGpu, RecordedPassesGiveWhatTheyGiveWithout) {
  for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks, Recompute::kStage}) {
      for (const uint32_t slices : {1u, 2u}) {
        for (const std::optional<uint32_t> vocabulary : {std::optional<uint32_t>(), {120'000}}) {
          SCOPED_TRACE(std::string(ToString(dtype)) + std::string(ToString(recompute)));
          DpoCase one{.name = "",
                      .slices = slices,
                      .recompute = recompute,
                      .vocabulary = vocabulary,
                      .dropout = 0.2,
                      .dtype = dtype,
                      .device = testing::kGpu};
          Chain recorded(one, kB);
          one.graphs = false;
          Chain without(one, kB);
          EXPECT_EQ(recorded.Validate().loss, without.Validate().loss);
          for (uint64_t step = 1; step <= 3; ++step) {
            const DpoResult got = recorded.Step(step), expected = without.Step(step);
            EXPECT_EQ(got.loss, expected.loss);
            EXPECT_EQ(got.margin, expected.margin);
            EXPECT_EQ(got.gradients, expected.gradients);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::worker
