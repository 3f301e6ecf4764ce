// Direct preference optimization of a stage is that of a reference in fp64 (dpo_reference.h): loss,
// margins and the gradient of every adapter; over several stages, slices, ranks, ways to recompute,
// chunks of the loss and stored bases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <ostream>
#include <string>
#include <vector>

#include "tests/parity/worker/dpo_cases.h"

namespace longhaul::worker {
namespace {

class Dpo : public ::testing::TestWithParam<DpoCase> {
 protected:
  static std::string NameOf(const ::testing::TestParamInfo<DpoCase>& info) {
    return info.param.name;
  }
};

class DpoInDouble : public Dpo {};

TEST_P(DpoInDouble, LossAndGradientsAreThoseOfTheReference) {
  const StageOptions options = WholeOf(GetParam());
  const DpoResult expected =
      DpoByHand(options.model, *options.train.dpo, AllValues(options, kB), AllPairs());
  // The test can tell a right gradient from a wrong one.
  EXPECT_GT(std::abs(expected.margin), 0.05);
  EXPECT_GT(std::abs(expected.loss - std::numbers::ln2), 0.01);
  Chain chain(GetParam(), kB);
  ExpectNear(chain.Step(), expected, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Stages, DpoInDouble,
    ::testing::Values(
        DpoCase{.name = "one"}, DpoCase{.name = "three_stages", .stages = 3},
        DpoCase{.name = "smoothed", .label_smoothing = 0.2},
        DpoCase{.name = "by_blocks", .recompute = Recompute::kBlocks},
        DpoCase{.name = "recompute_3_stages", .stages = 3, .recompute = Recompute::kStage},
        DpoCase{.name = "slices", .slices = 4},
        DpoCase{.name = "slices_3_stages", .stages = 3, .slices = 2},
        DpoCase{.name = "slices_by_blocks", .slices = 3, .recompute = Recompute::kBlocks},
        // The loss in two chunks (run/model/loss_chunks.h).
        DpoCase{.name = "chunks", .vocabulary = 120'000}, DpoCase{.name = "two_ranks", .ranks = 2},
        DpoCase{.name = "two_ranks_sequence", .ranks = 2, .sequence = true}),
    [](const auto& test) { return test.param.name; });

// Two ways of one computation.
struct Two {
  DpoCase one, other;
  double bound = 0;  // 0: to the bit
};
void PrintTo(const Two& two, std::ostream* out) {
  *out << two.other.name;
}
class DpoTwoWays : public ::testing::TestWithParam<Two> {};

TEST_P(DpoTwoWays, GiveTheSame) {
  Chain one(GetParam().one, kB), other(GetParam().other, kB);
  const DpoResult expected = one.Step(), got = other.Step();
  if (GetParam().bound > 0) {
    ExpectNear(got, expected, GetParam().bound);
    return;
  }
  EXPECT_EQ(got.loss, expected.loss);
  EXPECT_EQ(got.margin, expected.margin);
  EXPECT_EQ(got.gradients, expected.gradients);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DpoTwoWays,
    ::testing::Values(Two{{.name = "gpt", .family = ModelFamily::kGpt},
                          {.name = "gpt_stages", .family = ModelFamily::kGpt, .stages = 3}},
                      Two{{.name = "moe", .family = ModelFamily::kMoe},
                          {.name = "moe_stages", .family = ModelFamily::kMoe, .stages = 3}},
                      Two{{.name = "moe", .family = ModelFamily::kMoe},
                          {.name = "moe_ranks", .family = ModelFamily::kMoe, .ranks = 2},
                          1e-5},
                      Two{{.name = "dropout", .dropout = 0.2},
                          {.name = "dropout_again",
                           .stages = 3,
                           .recompute = Recompute::kBlocks,
                           .dropout = 0.2}},
                      Two{{.name = "nf4", .quantize = QuantizeBase::kNf4},
                          {.name = "nf4_again",
                           .stages = 3,
                           .recompute = Recompute::kStage,
                           .quantize = QuantizeBase::kNf4}}),
    [](const auto& test) { return test.param.other.name; });

// Untrained adapters change nothing, so no answer is preferred.
TEST(DpoLoss, IsLogTwoWithoutAdapters) {
  for (const ModelFamily family : {ModelFamily::kGpt, ModelFamily::kLlama, ModelFamily::kMoe}) {
    for (const uint32_t stages : {1u, 3u}) {
      Chain chain({.name = "", .family = family, .stages = stages, .dropout = 0.3}, /*b=*/0);
      const DpoResult before = chain.Validate();
      EXPECT_NEAR(before.loss, std::numbers::ln2, 1e-12);
      EXPECT_EQ(before.margin, 0);
      EXPECT_EQ(before.accuracy, 0);
      EXPECT_NEAR(chain.Step().loss, std::numbers::ln2, 1e-12);
    }
  }
}

TEST(DpoLoss, FallsAndPrefersWhatWasChosen) {
  Chain chain({.name = "", .stages = 3}, /*b=*/0);
  for (uint64_t step = 1; step <= 30; ++step) chain.Step(step);
  const DpoResult after = chain.Validate();
  EXPECT_LT(after.loss, 0.3);
  EXPECT_EQ(after.accuracy, 1);
  EXPECT_GT(after.margin, 1);
}

TEST(DpoStage, NeedsAdaptersAndDocuments) {
  for (const auto& spoil : std::vector<void (*)(StageOptions&)>{
           [](StageOptions& options) { options.model.lora.reset(); },
           [](StageOptions& options) { options.masked_attention = false; },
           [](StageOptions& options) { options.masked_targets = false; }}) {
    StageOptions options = WholeOf({.name = ""});
    spoil(options);
    EXPECT_EQ(Stage::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace longhaul::worker
