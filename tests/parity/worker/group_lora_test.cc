// Adapters on a stage that ranks share are those of one rank, within rounding: outputs, losses, the
// gradient of every adapter, and checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "run/model/lora.h"
#include "tests/parity/worker/group_cases.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

struct LoraCase {
  Case of_group;
  double dropout = 0;
  QuantizeBase quantize = QuantizeBase::kNone;
};
void PrintTo(const LoraCase& one, std::ostream* out) {
  *out << one.of_group.name;
}

StageOptions AdaptedOptionsOf(const LoraCase& one) {
  StageOptions options = OptionsOf(one.of_group);
  // Balance::kBias moves numbers that adapted models do not have.
  options.model.lora = LoraSpec{
      .rank = 3, .alpha = 6, .dropout = one.dropout, .quantize_base = one.quantize, .targets = {}};
  options.model.lora->targets = model::TargetsOf(options.model);
  return options;
}

// B begins with zeros, so that A has no gradient: other numbers for both.
StageSnapshot WithNumbers(StageSnapshot snapshot) {
  int salt = 1;
  for (NamedArray& array : snapshot.parameters) {
    for (size_t i = 0; i < array.values.size(); ++i) array.values[i] = 0.1f * Noise(i, salt);
    ++salt;
  }
  return snapshot;
}

Computed OneAdaptedStep(const StageOptions& options, uint32_t ranks) {
  Computed computed;
  auto stage = MakeWith(options, ranks);
  EXPECT_TRUE(stage.ok()) << stage.status();
  if (!stage.ok()) return computed;
  computed.before = (*stage)->Snapshot().value();
  const Status restored = (*stage)->Restore(WithNumbers(computed.before));
  EXPECT_TRUE(restored.ok()) << restored;
  RunStep(**stage, options, 1, &computed);
  computed.after = (*stage)->Snapshot().value();
  return computed;
}

class GroupLora : public ::testing::TestWithParam<LoraCase> {};

TEST_P(GroupLora, EveryGradientIsThatOfOneRank) {
  const Case& one = GetParam().of_group;
  const StageOptions options = AdaptedOptionsOf(GetParam());
  const Computed expected = OneAdaptedStep(options, 1), got = OneAdaptedStep(options, one.ranks);
  // In bf16 what B reads is rounded on the way, too. Parts of a quantized matrix have other scales
  // than the whole.
  const bool rounds_parts = GetParam().quantize == QuantizeBase::kInt8;
  const double bound = one.dtype == ComputeDtype::kFp32 && !rounds_parts ? 1e-5 : 4e-2;
  ExpectSame(got.before.parameters, expected.before.parameters);
  ExpectNear(got, expected, bound);
  size_t gradients = 0;
  ASSERT_EQ(got.after.moments.size(), expected.after.moments.size());
  for (size_t i = 0; i < expected.after.moments.size(); ++i) {
    const NamedArray& moment = expected.after.moments[i];
    ASSERT_EQ(got.after.moments[i].name, moment.name);
    EXPECT_NE(moment.name.find(".lora_"), std::string::npos) << moment.name;
    if (!moment.name.ends_with(".exp_avg")) continue;
    ++gradients;
    EXPECT_LE(RelativeError(got.after.moments[i].values, moment.values), bound) << moment.name;
  }
  EXPECT_EQ(gradients, expected.after.parameters.size());
}

TEST_P(GroupLora, RepeatsToTheBit) {
  const StageOptions options = AdaptedOptionsOf(GetParam());
  const uint32_t ranks = GetParam().of_group.ranks;
  const Computed a = OneAdaptedStep(options, ranks), b = OneAdaptedStep(options, ranks);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.outputs, b.outputs);
  ExpectSame(a.after.parameters, b.after.parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Stages, GroupLora,
    ::testing::Values(
        LoraCase{{.name = "gpt_2"}}, LoraCase{{.name = "gpt_bf16_2", .dtype = ComputeDtype::kBf16}},
        LoraCase{{.name = "gpt_first_2", .part = Part::kFirst}},
        LoraCase{{.name = "gpt_middle_4", .part = Part::kMiddle, .ranks = 4}},
        LoraCase{{.name = "gpt_blocks_again_2", .recompute = Recompute::kBlocks}},
        LoraCase{{.name = "gpt_sequence_2", .sequence = true}},
        LoraCase{{.name = "gpt_sequence_tied_4", .ranks = 4, .tied = true, .sequence = true}},
        LoraCase{{.name = "llama_2", .family = ModelFamily::kLlama}},
        // Each of two heads of keys and values is held by two ranks.
        LoraCase{{.name = "llama_4", .family = ModelFamily::kLlama, .ranks = 4}},
        LoraCase{{.name = "llama_sequence_4",
                  .family = ModelFamily::kLlama,
                  .ranks = 4,
                  .sequence = true}},
        LoraCase{{.name = "moe_2", .family = ModelFamily::kMoe}},
        LoraCase{{.name = "moe_sequence_2", .family = ModelFamily::kMoe, .sequence = true}},
        LoraCase{{.name = "moe_experts_2", .family = ModelFamily::kMoe, .experts = 2}},
        LoraCase{{.name = "gpt_int8_2"}, 0, QuantizeBase::kInt8},
        LoraCase{{.name = "llama_int8_4", .family = ModelFamily::kLlama, .ranks = 4},
                 0,
                 QuantizeBase::kInt8},
        LoraCase{{.name = "moe_int8_experts_2", .family = ModelFamily::kMoe, .experts = 2},
                 0,
                 QuantizeBase::kInt8},
        LoraCase{
            {.name = "moe_experts_2_of_4", .family = ModelFamily::kMoe, .ranks = 4, .experts = 2}},
        LoraCase{{.name = "moe_experts_sequence_4",
                  .family = ModelFamily::kMoe,
                  .ranks = 4,
                  .sequence = true,
                  .experts = 4}},
        LoraCase{{.name = "gpt_dropout_2"}, 0.25},
        LoraCase{{.name = "gpt_dropout_sequence_blocks_again_2",
                  .sequence = true,
                  .recompute = Recompute::kBlocks},
                 0.25},
        LoraCase{{.name = "llama_dropout_4", .family = ModelFamily::kLlama, .ranks = 4}, 0.25},
        LoraCase{{.name = "llama_dropout_bf16_2",
                  .family = ModelFamily::kLlama,
                  .dtype = ComputeDtype::kBf16},
                 0.25}),
    [](const auto& test) { return test.param.of_group.name; });

// Experts' rows lie in another order on several ranks, so other numbers are dropped. A step repeats
// to the bit all the same.
TEST(GroupLoraOfExperts, DropoutRepeatsToTheBit) {
  const LoraCase one{{.name = "moe", .family = ModelFamily::kMoe, .experts = 2}, 0.25};
  const StageOptions options = AdaptedOptionsOf(one);
  StageOptions again = options;
  again.recompute = Recompute::kBlocks;
  const Computed a = OneAdaptedStep(options, 2), b = OneAdaptedStep(again, 2);
  EXPECT_EQ(a.losses, b.losses);
  ExpectSame(a.after.parameters, b.after.parameters);
  StageOptions without = options;
  without.model.lora->dropout = 0;
  EXPECT_NE(OneAdaptedStep(without, 2).losses, a.losses);
}

TEST(GroupLora, ManyStepsAreThoseOfOneRankAndCheckpointsFit) {
  const LoraCase one_case{{.name = "llama", .family = ModelFamily::kLlama}, 0.1};
  const StageOptions options = AdaptedOptionsOf(one_case);
  auto one = MakeWith(options, 1), four = MakeWith(options, 4);
  ASSERT_TRUE(one.ok() && four.ok()) << one.status() << four.status();
  Computed expected, got;
  for (uint64_t step = 1; step <= 10; ++step) {
    RunStep(**one, options, step, &expected);
    RunStep(**four, options, step, &got);
  }
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-4 * expected.losses[i]) << i;
  }
  auto two = MakeWith(options, 2);
  ASSERT_TRUE(two.ok());
  const StageSnapshot snapshot = (*four)->Snapshot().value();
  const Status restored = (*two)->Restore(snapshot);
  ASSERT_TRUE(restored.ok()) << restored;
  ExpectSame((*two)->Snapshot()->parameters, snapshot.parameters);
  ExpectSame((*two)->Snapshot()->moments, snapshot.moments);
}

// Ranks load their shares of what is frozen, and of adapters.
TEST(GroupLora, LoadsModelAndAdapters) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kMoe}) {
    StageOptions options = AdaptedOptionsOf(
        {{.name = "", .family = family, .experts = family == ModelFamily::kMoe ? 2u : 1u}});
    options.loads = options.loads_adapters = true;
    const ReadParameter read = [](const model::PlacedParameter& parameter,
                                  std::span<float> values) {
      int salt = 0;
      for (const char letter : parameter.Name()) salt = (salt * 31 + letter) % 1000;
      for (size_t i = 0; i < values.size(); ++i) values[i] = 0.1f * Noise(i, salt);
      return absl::OkStatus();
    };
    Computed expected, got;
    for (const uint32_t ranks : {1, 2}) {
      auto stage = MakeWith(options, ranks);
      ASSERT_TRUE(stage.ok()) << stage.status();
      ASSERT_EQ((*stage)->Load(read), absl::OkStatus());
      Computed& computed = ranks == 1 ? expected : got;
      computed.before = (*stage)->Snapshot().value();
      RunStep(**stage, options, 1, &computed);
    }
    ExpectSame(got.before.parameters, expected.before.parameters);
    EXPECT_NE(got.before.parameters.front().values.front(), 0);
    for (size_t m = 0; m < expected.losses.size(); ++m) {
      EXPECT_NEAR(got.losses[m], expected.losses[m], 1e-5 * expected.losses[m]);
    }
  }
}

}  // namespace
}  // namespace longhaul::worker
