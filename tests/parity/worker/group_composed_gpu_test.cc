// What composes with ranks on two GPUs: Muon, sequence chunks, and steps that overlap. Skipped by
// name where there is one GPU.
#include <gtest/gtest.h>

#include <vector>

#include "tests/parity/worker/group_cases.h"
#include "tests/parity/worker/group_composed.h"
#include "tests/parity/worker/slice_cases.h"
#include "tests/parity/worker/stage_on_gpu.h"

namespace longhaul::worker {
namespace {

using testing::kGpu;

class ComposedOnGpus : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { testing::LoadTorchCudaOrFail(); }
  void SetUp() override {
    int devices = 0;
    ASSERT_EQ(testing::Gpu().table().device_count(&devices), 0);
    if (devices < 2) GTEST_SKIP() << "a group of two needs two GPUs, this machine has " << devices;
  }
  static StageOptions Options(const Case& one, OptimizerKind kind, bool graphs) {
    StageOptions options = OptionsOf(one);
    options.device = kGpu;
    options.graphs = graphs;
    options.train.deterministic = true;
    options.train.optimizer.kind = kind;
    return options;
  }
};

// A GPU multiplies in bf16 for Muon, whatever the type of the model.
TEST_F(ComposedOnGpus, MuonLearnsAsOnOneGpu) {
  for (const Case& one : {Case{}, Case{.family = ModelFamily::kLlama, .sequence = true},
                          Case{.family = ModelFamily::kLlama, .dtype = ComputeDtype::kBf16},
                          Case{.family = ModelFamily::kMoe, .experts = 2}}) {
    SCOPED_TRACE(ToString(one.family));
    const StageOptions options = Options(one, OptimizerKind::kMuon, /*graphs=*/true);
    auto alone = MakeWith(options, 1), two = MakeWith(options, 2), again = MakeWith(options, 2);
    ASSERT_TRUE(alone.ok() && two.ok() && again.ok()) << alone.status() << two.status();
    Computed expected, got, repeated;
    for (uint64_t step = 1; step <= 10; ++step) {
      RunStep(**alone, options, step, &expected);
      RunStep(**two, options, step, &got);
      RunStep(**again, options, step, &repeated);
    }
    EXPECT_EQ(repeated.losses, got.losses);
    ExpectSame((*again)->Snapshot()->parameters, (*two)->Snapshot()->parameters);
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], expected.losses[i], 2e-2 * expected.losses[i]) << i;
    }
  }
}

TEST_F(ComposedOnGpus, SlicesRecordedAndNotGiveWhatWholeMicrobatchesOfOneGpuGive) {
  for (const SliceCase& one :
       {SliceCase{"Gpt", ModelFamily::kGpt}, SliceCase{"Llama", ModelFamily::kLlama},
        SliceCase{"GptByBlocks", ModelFamily::kGpt, Recompute::kBlocks},
        SliceCase{.name = "LlamaBf16", .family = ModelFamily::kLlama, .dtype = ComputeDtype::kBf16},
        SliceCase{"LlamaLora", ModelFamily::kLlama, Recompute::kNone, false, false, true}}) {
    SCOPED_TRACE(one.name);
    const double bound = one.dtype == ComputeDtype::kFp32 ? 1e-4 : 3e-2;
    const uint64_t steps = one.lora ? 2 : 1;
    const OfSlices whole = SlicedChain(one, 1, {kGpu, true}).Train(steps);
    for (const bool sequence : {false, true}) {
      const MakeStage make = OfRanks(2, {.sequence = sequence});
      const OfSlices recorded = SlicedChain(one, 4, {kGpu, true}, make).Train(steps);
      const OfSlices eager = SlicedChain(one, 4, {kGpu, false}, make).Train(steps);
      ExpectThoseOfWhole(recorded, whole, bound);
      EXPECT_EQ(recorded.losses, eager.losses) << sequence;
      EXPECT_EQ(recorded.moments, eager.moments) << sequence;
    }
  }
}

TEST_F(ComposedOnGpus, StepsThatOverlapHaveTheLossesOfOneGpu) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    const Case one{.family = ModelFamily::kLlama, .sequence = true};
    const StageOptions options = Options(one, kind, /*graphs=*/true);
    const std::vector<double> alone = OverlappedLosses(options, 1, 5),
                              two = OverlappedLosses(options, 2, 5),
                              eager = OverlappedLosses(Options(one, kind, false), 2, 5);
    ASSERT_EQ(two.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(two[i], alone[i], 1e-2 * alone[i]) << i;
    EXPECT_EQ(eager, two);
  }
}

}  // namespace
}  // namespace longhaul::worker
