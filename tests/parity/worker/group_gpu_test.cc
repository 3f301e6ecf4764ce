// A group of two GPUs computes what one computes, with passes recorded or not. Skipped by name
// where there is one GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/parity/worker/group_cases.h"
#include "tests/parity/worker/stage_chain.h"
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

// Losses of `got`, held against those of one GPU, and its gradients. Numbers in bf16 are rounded
// elsewhere in a group, so gradients are held against `exact`, which is one GPU's fp32: a group may
// be little further from that than one GPU is.
void ExpectClose(const Computed& got, const Computed& one, const Computed& exact, double bound) {
  ASSERT_EQ(got.losses.size(), one.losses.size());
  for (size_t m = 0; m < one.losses.size(); ++m) {
    EXPECT_NEAR(got.losses[m], one.losses[m], bound * one.losses[m]);
  }
  EXPECT_NEAR(got.squared_norm / one.squared_norm, 1, bound);
  ASSERT_EQ(got.after.moments.size(), one.after.moments.size());
  for (size_t i = 0; i < one.after.moments.size(); ++i) {
    const NamedArray& moment = one.after.moments[i];
    if (!moment.name.ends_with(".exp_avg") ||
        moment.name.find("k_proj.bias") != std::string::npos) {
      continue;
    }
    const double own = RelativeError(moment.values, exact.after.moments[i].values);
    EXPECT_LE(RelativeError(got.after.moments[i].values, exact.after.moments[i].values),
              std::max(bound, 1.5 * own))
        << moment.name << "; one GPU is " << own << " off fp32";
  }
}

TEST_P(GroupOnGpus, EveryGradientIsThatOfOneGpu) {
  const double bound = GetParam().dtype == ComputeDtype::kFp32 ? 1e-5 : 1e-2;
  const Computed one = OneStep(Options(false), 1);
  StageOptions in_fp32 = Options(false);
  in_fp32.train.dtype = ComputeDtype::kFp32;
  const Computed exact = OneStep(in_fp32, 1);
  for (const bool graphs : {false, true}) {
    SCOPED_TRACE(graphs ? "recorded" : "not recorded");
    const Computed got = OneStep(Options(graphs), 2);
    ExpectSame(got.before.parameters, one.before.parameters);
    ExpectClose(got, one, exact, bound);
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
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], expected.losses[i], bound * expected.losses[i]) << i;
  }
}

std::vector<double> LossesOf(const StageOptions& options, GroupCollective what) {
  GroupSpec group;
  group.forward = group.backward = what;
  auto stage = MakeWith(options, 2, group);
  EXPECT_TRUE(stage.ok()) << stage.status();
  Computed computed;
  for (uint64_t step = 1; stage.ok() && step <= 20; ++step) {
    RunStep(**stage, options, step, &computed);
  }
  return computed.losses;
}

// Two numbers have one sum, whoever adds them.
TEST_P(GroupOnGpus, ZipLosesNothing) {
  EXPECT_EQ(LossesOf(Options(true), GroupCollective::kZip),
            LossesOf(Options(true), GroupCollective::kNone));
}

TEST_P(GroupOnGpus, WhateverAutoChoosesLosesNothing) {
  EXPECT_EQ(LossesOf(Options(true), GroupCollective::kAuto),
            LossesOf(Options(true), GroupCollective::kNone));
}

// Recording sends nothing, and each pass that is queued what it would send unrecorded.
TEST_P(GroupOnGpus, RecordedPassesAreCountedEachTime) {
  const auto sent = [](const StageOptions& options) {
    auto stage = MakeWith(options, 2);
    EXPECT_TRUE(stage.ok()) << stage.status();
    if (!stage.ok()) return CollectiveBytes();
    Computed computed;
    RunStep(**stage, options, 1, &computed);
    const CollectiveBytes before = (*stage)->collectives().sent;
    RunStep(**stage, options, 2, &computed);
    EXPECT_FALSE((*stage)->collectives().seconds.has_value());
    return (*stage)->collectives().sent - before;
  };
  const CollectiveBytes eager = sent(Options(false));
  EXPECT_GT(eager.total(), 0u);
  EXPECT_EQ(sent(Options(true)), eager);
}

TEST_P(GroupOnGpus, TacoStaysClose) {
  const std::vector<double> expected = LossesOf(Options(true), GroupCollective::kNone),
                            got = LossesOf(Options(true), GroupCollective::kTaco);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_NE(got, expected);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 0.02 * expected[i]) << i;
}

// Weight gradients are computed while ranks sum those of inputs. Here both take long enough for one
// that did not wait for the other to be seen: in what a step gives twice, and in what one GPU
// gives.
class LargeOnGpus : public GroupOnGpus {};

TEST_P(LargeOnGpus, ProductsAndSumsWaitForEachOther) {
  for (const bool graphs : {false, true}) {
    for (const double shared : {1.0, 0.5}) {
      // Experts take a token's channels whole.
      if (shared < 1 && GetParam().family == ModelFamily::kMoe) continue;
      StageOptions options = Options(graphs);
      options.model.hidden = options.model.context = 1024;
      options.model.heads = 16;
      options.model.layers = options.layers = 2;
      options.train.deterministic = true;
      options.group.shared_channels = shared;
      if (shared < 1 && options.group.sequence) continue;
      SCOPED_TRACE(
          fmt::format("{}recorded, {} of the channels shared", graphs ? "" : "not ", shared));
      const Computed got = OneStep(options, 2), again = OneStep(options, 2);
      EXPECT_EQ(got.losses, again.losses);
      EXPECT_EQ(got.squared_norm, again.squared_norm);
      ExpectSame(got.after.moments, again.after.moments);
      if (shared < 1) continue;
      StageOptions in_fp32 = options;
      in_fp32.train.dtype = ComputeDtype::kFp32;
      const double bound = GetParam().dtype == ComputeDtype::kFp32 ? 1e-4 : 1e-2;
      ExpectClose(got, OneStep(options, 1), OneStep(in_fp32, 1), bound);
    }
  }
}

// Boundaries lie on the first GPU, and the second reads them there while the first computes.
TEST_P(GroupOnGpus, StagesOfGroupsFollowEachOther) {
  StageOptions options = Options(true);
  if (GetParam().tied || GetParam().masked) GTEST_SKIP() << "no stages of this model in a chain";
  options.layers = options.model.layers = 4;
  options.train.microbatches = 4;
  testing::StageChain one(options, 2);
  testing::StageChain two(options, 2, std::identity(),
                          [](const StageOptions& part) { return MakeWith(part, 2); });
  const double bound = GetParam().dtype == ComputeDtype::kFp32 ? 1e-3 : 2e-2;
  for (uint64_t step = 1; step <= 10; ++step) {
    const double expected = one.Train(step);
    EXPECT_NEAR(two.Train(step), expected, bound * expected) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GroupOnGpus,
    ::testing::Values(
        Case{.name = "gpt"}, Case{.name = "gpt_tied", .tied = true},
        Case{.name = "gpt_bf16", .dtype = ComputeDtype::kBf16},
        Case{.name = "gpt_documents", .masked = true},
        Case{.name = "gpt_again", .recompute = Recompute::kBlocks},
        Case{.name = "gpt_sequence", .sequence = true},
        Case{.name = "llama", .family = ModelFamily::kLlama},
        Case{.name = "llama_sequence_bf16",
             .family = ModelFamily::kLlama,
             .dtype = ComputeDtype::kBf16,
             .sequence = true},
        Case{.name = "llama_bf16", .family = ModelFamily::kLlama, .dtype = ComputeDtype::kBf16},
        Case{.name = "llama_qk_norm_bf16",
             .family = ModelFamily::kLlama,
             .dtype = ComputeDtype::kBf16,
             .qk_norm = true},
        Case{.name = "moe", .family = ModelFamily::kMoe},
        Case{.name = "moe_experts", .family = ModelFamily::kMoe, .experts = 2},
        Case{.name = "moe_experts_sequence",
             .family = ModelFamily::kMoe,
             .sequence = true,
             .experts = 2}),
    NameOf);

// Sums of ranks with channels of their own are those in fp32, in the order of ranks, on every path:
// NCCL's own bf16 sums of four ranks would round at every hop.
TEST(OwnChannelsOnGpus, LossesOverNcclAreThoseThroughMappedMemory) {
  testing::LoadTorchCudaOrFail();
  int devices = 0;
  ASSERT_EQ(testing::Gpu().table().device_count(&devices), 0);
  if (devices < 4) GTEST_SKIP() << "a group of four needs four GPUs, this machine has " << devices;
  for (const GroupCollective what : {GroupCollective::kNone, GroupCollective::kZip}) {
    SCOPED_TRACE(ToString(what));
    StageOptions options = OptionsOf({.family = ModelFamily::kLlama, .dtype = ComputeDtype::kBf16});
    options.model.kv_heads = options.model.heads;
    options.device = kGpu;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      options.ranks.push_back(kGpu);
      *options.ranks.back().cuda_index += rank;
    }
    options.group = {.tensor = 4, .shared_channels = 0.5, .forward = what, .backward = what};
    std::vector<double> losses[2];
    for (const GroupPath path : {GroupPath::kNccl, GroupPath::kMapped}) {
      auto stage = MakeGroupStage(options, CommunicatorsFor(options, "", path));
      ASSERT_TRUE(stage.ok()) << stage.status();
      if (path == GroupPath::kNccl) {
        EXPECT_NE((*stage)->collectives().forward.find("fp32 sums over nccl"), std::string::npos)
            << (*stage)->collectives().forward;
      }
      Computed computed;
      for (uint64_t step = 1; step <= 20; ++step) RunStep(**stage, options, step, &computed);
      losses[path == GroupPath::kNccl ? 0 : 1] = computed.losses;
    }
    EXPECT_EQ(losses[0], losses[1]);
  }
}

// In bf16, where products of all experts are one: gradients are not held against another routing.
TEST(ExpertsOnGpus, LearnInBf16AsInFp32AndZipLosesNothing) {
  testing::LoadTorchCudaOrFail();
  int devices = 0;
  ASSERT_EQ(testing::Gpu().table().device_count(&devices), 0);
  if (devices < 2) GTEST_SKIP() << "a group of two needs two GPUs, this machine has " << devices;
  StageOptions options = OptionsOf({.family = ModelFamily::kMoe, .experts = 2});
  options.device = kGpu;
  const std::vector<double> exact = LossesOf(options, GroupCollective::kNone);
  options.train.dtype = ComputeDtype::kBf16;
  const std::vector<double> got = LossesOf(options, GroupCollective::kNone);
  ASSERT_EQ(got.size(), exact.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], exact[i], 0.02 * exact[i]) << i;
  EXPECT_EQ(LossesOf(options, GroupCollective::kZip), got);
}

}  // namespace
}  // namespace longhaul::worker
