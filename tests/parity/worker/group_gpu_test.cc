// A group of two GPUs computes what one computes, with passes recorded or not. Skipped by name
// where there is one GPU.
#include <gtest/gtest.h>

#include <string>

#include "tests/parity/worker/group_cases.h"
#include "tests/parity/worker/stage_on_gpu.h"

namespace longhaul::worker {
namespace {

using testing::kGpu;

class GroupOnGpus : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { testing::LoadTorchCudaOrFail(); }
  void SetUp() override {
    int devices = 0;
    ASSERT_EQ(testing::Gpu().table().device_count(&devices), 0);
    if (devices < 2) GTEST_SKIP() << "a group of two needs two GPUs, this machine has " << devices;
  }
  static StageOptions Options(bool graphs) {
    StageOptions options = OptionsOf(GetParam());
    options.device = kGpu;
    options.graphs = graphs;
    return options;
  }
};

void ExpectClose(const Computed& got, const Computed& expected, double bound) {
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  for (size_t m = 0; m < expected.losses.size(); ++m) {
    EXPECT_NEAR(got.losses[m], expected.losses[m], bound * expected.losses[m]);
  }
  EXPECT_NEAR(got.squared_norm / expected.squared_norm, 1, bound);
  ASSERT_EQ(got.after.moments.size(), expected.after.moments.size());
  for (size_t i = 0; i < expected.after.moments.size(); ++i) {
    const NamedArray& moment = expected.after.moments[i];
    if (!moment.name.ends_with(".exp_avg") ||
        moment.name.find("k_proj.bias") != std::string::npos) {
      continue;
    }
    EXPECT_LE(RelativeError(got.after.moments[i].values, moment.values), bound) << moment.name;
  }
}

TEST_P(GroupOnGpus, EveryGradientIsThatOfOneGpu) {
  const double bound = GetParam().dtype == ComputeDtype::kFp32 ? 1e-5 : 1e-2;
  const Computed expected = OneStep(Options(false), 1);
  for (const bool graphs : {false, true}) {
    SCOPED_TRACE(graphs ? "recorded" : "not recorded");
    const Computed got = OneStep(Options(graphs), 2);
    ExpectSame(got.before.parameters, expected.before.parameters);
    ExpectClose(got, expected, bound);
  }
}

TEST_P(GroupOnGpus, LossesOfRecordedStepsAreThoseOfOneGpu) {
  const StageOptions options = Options(true);
  auto one = MakeWith(options, 1), two = MakeWith(options, 2);
  ASSERT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
  Computed expected, got;
  for (uint64_t step = 1; step <= 20; ++step) {
    RunStep(**one, options, step, &expected);
    RunStep(**two, options, step, &got);
  }
  const double bound = GetParam().dtype == ComputeDtype::kFp32 ? 1e-3 : 2e-2;
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], expected.losses[i], bound * expected.losses[i]) << i;
  }
}

TEST_P(GroupOnGpus, CompressedSumsTrain) {
  const StageOptions options = Options(true);
  for (const GroupCollective what : {GroupCollective::kTaco, GroupCollective::kZip}) {
    GroupSpec group;
    group.forward = group.backward = what;
    StageOptions own = options;
    own.graphs = what == GroupCollective::kTaco;  // zip waits for sizes
    auto stage = MakeWith(own, 2, group);
    ASSERT_TRUE(stage.ok()) << stage.status();
    Computed computed;
    for (uint64_t step = 1; step <= 20; ++step) RunStep(**stage, own, step, &computed);
    EXPECT_LT(computed.losses.back(), 0.97 * computed.losses.front());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GroupOnGpus,
    ::testing::Values(
        Case{.name = "gpt"}, Case{.name = "gpt_tied", .tied = true},
        Case{.name = "gpt_bf16", .dtype = ComputeDtype::kBf16},
        Case{.name = "gpt_documents", .masked = true},
        Case{.name = "gpt_again", .recompute = Recompute::kBlocks},
        Case{.name = "llama", .family = ModelFamily::kLlama},
        Case{.name = "llama_bf16", .family = ModelFamily::kLlama, .dtype = ComputeDtype::kBf16},
        Case{.name = "llama_qk_norm_bf16",
             .family = ModelFamily::kLlama,
             .dtype = ComputeDtype::kBf16,
             .qk_norm = true}),
    NameOf);

}  // namespace
}  // namespace longhaul::worker
