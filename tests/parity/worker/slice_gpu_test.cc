// Slices of microbatches on a GPU: recorded passes give, to the bit, what they do without
// recording, and to rounding what whole microbatches give.
#include "tests/parity/worker/slice_cases.h"
#include "tests/parity/worker/stage_on_gpu.h"

namespace longhaul::worker {
namespace {

class SlicesOnGpu : public ::testing::TestWithParam<SliceCase> {
 protected:
  static void SetUpTestSuite() { testing::LoadTorchCudaOrFail(); }
  static constexpr SliceDevice kRecorded{testing::kGpu, true}, kAsItGoes{testing::kGpu, false};
  static constexpr uint64_t kSteps = 3;
};

TEST_P(SlicesOnGpu, RecordedGiveWhatTheyGiveWithout) {
  for (const uint32_t slices : {2u, 4u}) {
    const OfSlices recorded = SlicedChain(GetParam(), slices, kRecorded).Train(kSteps);
    const OfSlices without = SlicedChain(GetParam(), slices, kAsItGoes).Train(kSteps);
    EXPECT_EQ(recorded.losses, without.losses) << slices;
    EXPECT_EQ(recorded.evaluated, without.evaluated) << slices;
    EXPECT_EQ(recorded.squared_norm, without.squared_norm) << slices;
    EXPECT_EQ(recorded.moments, without.moments) << slices;
  }
}

TEST_P(SlicesOnGpu, LossesAndGradientsAreThoseOfWholeMicrobatches) {
  const uint64_t steps = GetParam().lora ? 2 : 1;
  const OfSlices whole = SlicedChain(GetParam(), 1, kRecorded).Train(steps);
  const double bound = GetParam().dtype == ComputeDtype::kFp32 ? 1e-4 : 3e-2;
  for (const uint32_t slices : {2u, 4u}) {
    SCOPED_TRACE(slices);
    ExpectThoseOfWhole(SlicedChain(GetParam(), slices, kRecorded).Train(steps), whole, bound);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, SlicesOnGpu,
    ::testing::Values(
        SliceCase{"Gpt", ModelFamily::kGpt}, SliceCase{"Llama", ModelFamily::kLlama},
        SliceCase{.name = "GptBf16", .family = ModelFamily::kGpt, .dtype = ComputeDtype::kBf16},
        SliceCase{.name = "LlamaBf16", .family = ModelFamily::kLlama, .dtype = ComputeDtype::kBf16},
        SliceCase{"GptByBlocks", ModelFamily::kGpt, Recompute::kBlocks},
        SliceCase{"LlamaByStage", ModelFamily::kLlama, Recompute::kStage},
        SliceCase{.name = "LlamaBf16ByBlocks",
                  .family = ModelFamily::kLlama,
                  .recompute = Recompute::kBlocks,
                  .dtype = ComputeDtype::kBf16},
        SliceCase{"GptDocuments", ModelFamily::kGpt, Recompute::kNone, true},
        SliceCase{"LlamaLora", ModelFamily::kLlama, Recompute::kNone, false, false, true}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace longhaul::worker
