// Microbatches that go through stages in slices have the losses and the gradients of whole ones, to
// rounding.
#include <fmt/format.h>

#include "tests/parity/worker/slice_cases.h"

namespace longhaul::worker {
namespace {

class SliceParity : public ::testing::TestWithParam<SliceCase> {};

TEST_P(SliceParity, LossesAndGradientsAreThoseOfWholeMicrobatches) {
  const uint64_t steps = GetParam().lora ? 2 : 1;
  const OfSlices whole = SlicedChain(GetParam(), 1).Train(steps);
  for (const uint32_t slices : {2u, 4u, 16u}) {
    const OfSlices cut = SlicedChain(GetParam(), slices).Train(steps);
    SCOPED_TRACE(fmt::format("{} slices", slices));
    ExpectThoseOfWhole(cut, whole, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, SliceParity,
    ::testing::Values(
        SliceCase{"Gpt", ModelFamily::kGpt}, SliceCase{"Llama", ModelFamily::kLlama},
        SliceCase{"GptByBlocks", ModelFamily::kGpt, Recompute::kBlocks},
        SliceCase{"LlamaByBlocks", ModelFamily::kLlama, Recompute::kBlocks},
        SliceCase{"GptByStage", ModelFamily::kGpt, Recompute::kStage},
        SliceCase{"LlamaByStage", ModelFamily::kLlama, Recompute::kStage},
        SliceCase{"GptDocuments", ModelFamily::kGpt, Recompute::kNone, true},
        SliceCase{"LlamaDocuments", ModelFamily::kLlama, Recompute::kBlocks, true},
        SliceCase{"LlamaPublished", ModelFamily::kLlama, Recompute::kNone, false, true},
        SliceCase{"GptLora", ModelFamily::kGpt, Recompute::kNone, false, false, true},
        SliceCase{"LlamaLora", ModelFamily::kLlama, Recompute::kStage, false, false, true}),
    [](const auto& test) { return test.param.name; });

// A step of several slices that gives the same bits each time.
TEST(SliceParityTest, RepeatsItself) {
  const SliceCase one{"Gpt", ModelFamily::kGpt};
  const OfSlices first = SlicedChain(one, 4).Train(2), again = SlicedChain(one, 4).Train(2);
  EXPECT_EQ(first.losses, again.losses);
  EXPECT_EQ(first.moments, again.moments);
}

TEST(SliceParityTest, SlicesOutOfTheirOrderAreRefused) {
  StageOptions options = SliceOptionsOf({"Gpt", ModelFamily::kGpt}, 2);
  options.layers = options.model.layers;
  auto stage = Stage::Create(options);
  ASSERT_TRUE(stage.ok()) << stage.status();
  const SliceBatch batch = SliceBatchOf({"", ModelFamily::kGpt}, 0);
  const Stage::Input input{.tokens = batch.ids, .activation = {}, .targets = batch.targets};
  const Slice first(Microbatch(0), 0), second(Microbatch(0), 1);
  double loss = 0;
  EXPECT_TRUE(absl::IsInvalidArgument((*stage)->Forward(second, input).status()));
  EXPECT_TRUE(absl::IsInvalidArgument((*stage)->Evaluate(second, input, &loss).status()));
  ASSERT_TRUE((*stage)->Forward(first, input).ok());
  EXPECT_TRUE(absl::IsInvalidArgument((*stage)->Forward({Microbatch(0), 2}, input).status()));
  EXPECT_TRUE(absl::IsInvalidArgument((*stage)->Backward(first, {}).status()));
  ASSERT_TRUE((*stage)->Forward(second, input).ok());
  EXPECT_TRUE(absl::IsInvalidArgument((*stage)->Backward(first, {}).status()));
  ASSERT_TRUE((*stage)->Backward(second, {}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition((*stage)->OptimizerStep(Step(1), 1e-3, 1)));
  ASSERT_TRUE((*stage)->Backward(first, {}).ok());
  EXPECT_EQ((*stage)->OptimizerStep(Step(1), 1e-3, 1), absl::OkStatus());
}

TEST(SliceParityTest, WhatSlicesWouldChangeIsRefused) {
  const auto refuses = [](const StageOptions& options) {
    return absl::IsInvalidArgument(Stage::Create(options).status());
  };
  StageOptions options = SliceOptionsOf({"Gpt", ModelFamily::kGpt}, 3);  // of 64 tokens
  options.layers = options.model.layers;
  EXPECT_TRUE(refuses(options));
  options = SliceOptionsOf({"Moe", ModelFamily::kMoe}, 2);
  options.layers = options.model.layers;
  EXPECT_TRUE(refuses(options));
}

}  // namespace
}  // namespace longhaul::worker
