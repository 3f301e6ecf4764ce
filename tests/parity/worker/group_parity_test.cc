// A stage whose matrices are shared by the ranks of a group computes what one rank computes, within
// rounding: outputs, losses, the gradient of every parameter, and its checkpoints are the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/worker/group_cases.h"
#include "worker/stage/group/group_stage.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class GroupParity : public ::testing::TestWithParam<Case> {};

TEST_P(GroupParity, EveryGradientIsThatOfOneRank) {
  const Case& one = GetParam();
  const StageOptions options = OptionsOf(one);
  const Computed expected = OneStep(options, 1), got = OneStep(options, one.ranks);
  const double bound = one.dtype == ComputeDtype::kFp32 ? 1e-5 : 1e-2;

  ExpectSame(got.before.parameters, expected.before.parameters);
  ExpectNear(got, expected, bound);
  // After one step AdamW's first moment is a tenth of the gradient.
  size_t gradients = 0;
  ASSERT_EQ(got.after.moments.size(), expected.after.moments.size());
  for (size_t i = 0; i < expected.after.moments.size(); ++i) {
    const NamedArray& moment = expected.after.moments[i];
    ASSERT_EQ(got.after.moments[i].name, moment.name);
    if (!moment.name.ends_with(".exp_avg")) continue;
    ++gradients;
    // The bias of keys has no gradient but rounding: it adds the same to all scores of a query.
    if (moment.name.find("k_proj.bias") != std::string::npos) continue;
    EXPECT_LE(RelativeError(got.after.moments[i].values, moment.values), bound) << moment.name;
  }
  size_t balances = 0;  // moved by counts of tokens, not by gradients
  ASSERT_EQ(got.after.parameters.size(), expected.after.parameters.size());
  for (size_t i = 0; i < expected.after.parameters.size(); ++i) {
    const NamedArray& parameter = expected.after.parameters[i];
    if (!parameter.name.ends_with("gate.balance")) continue;
    ++balances;
    EXPECT_EQ(got.after.parameters[i].values, parameter.values) << parameter.name;
    EXPECT_NE(parameter.values, expected.before.parameters[i].values) << parameter.name;
  }
  EXPECT_EQ(balances > 0, one.balance == Balance::kBias);
  EXPECT_EQ(gradients + balances, expected.after.parameters.size());
}

TEST_P(GroupParity, RepeatsToTheBit) {
  const StageOptions options = OptionsOf(GetParam());
  const Computed a = OneStep(options, GetParam().ranks), b = OneStep(options, GetParam().ranks);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.squared_norm, b.squared_norm);
  ExpectSame(a.after.parameters, b.after.parameters);
  ExpectSame(a.after.moments, b.after.moments);
}

INSTANTIATE_TEST_SUITE_P(
    Stages, GroupParity,
    ::testing::Values(
        Case{.name = "gpt_2"}, Case{.name = "gpt_4", .ranks = 4},
        Case{.name = "gpt_tied_2", .tied = true}, Case{.name = "gpt_first_2", .part = Part::kFirst},
        Case{.name = "gpt_middle_4", .part = Part::kMiddle, .ranks = 4},
        Case{.name = "gpt_last_2", .part = Part::kLast},
        Case{.name = "gpt_documents_2", .masked = true},
        Case{.name = "gpt_bf16_2", .dtype = ComputeDtype::kBf16},
        Case{.name = "gpt_blocks_again_2", .recompute = Recompute::kBlocks},
        Case{.name = "gpt_stage_again_4", .ranks = 4, .recompute = Recompute::kStage},
        Case{.name = "gpt_loss_in_chunks_2", .part = Part::kLast, .vocabulary = 70001, .rows = 4},
        Case{.name = "llama_2", .family = ModelFamily::kLlama},
        // Each of two heads of keys and values is held by two ranks.
        Case{.name = "llama_4", .family = ModelFamily::kLlama, .ranks = 4},
        Case{.name = "llama_qk_norm_4", .family = ModelFamily::kLlama, .ranks = 4, .qk_norm = true},
        Case{.name = "llama_qk_norm_2", .family = ModelFamily::kLlama, .qk_norm = true},
        Case{.name = "llama_tied_4", .family = ModelFamily::kLlama, .ranks = 4, .tied = true},
        Case{.name = "llama_middle_4",
             .family = ModelFamily::kLlama,
             .part = Part::kMiddle,
             .ranks = 4},
        Case{.name = "llama_bf16_4",
             .family = ModelFamily::kLlama,
             .ranks = 4,
             .dtype = ComputeDtype::kBf16},
        Case{.name = "llama_documents_2", .family = ModelFamily::kLlama, .masked = true},
        // Norms over the heads of all ranks, and norms behind products that are summed.
        Case{.name = "olmo2_4", .family = ModelFamily::kLlama, .ranks = 4, .kin = "olmo2"},
        Case{.name = "olmo2_sequence_2",
             .family = ModelFamily::kLlama,
             .sequence = true,
             .kin = "olmo2"},
        Case{.name = "phi3_2", .family = ModelFamily::kLlama, .kin = "phi3"},
        Case{.name = "gemma2_2", .family = ModelFamily::kLlama, .kin = "gemma2"},
        Case{.name = "gemma3_sequence_4",
             .family = ModelFamily::kLlama,
             .ranks = 4,
             .sequence = true,
             .kin = "gemma3"},
        // Every rank has all experts, for its own tokens.
        Case{.name = "moe_2", .family = ModelFamily::kMoe},
        Case{.name = "moe_last_4", .family = ModelFamily::kMoe, .part = Part::kLast, .ranks = 4},
        Case{.name = "moe_sequence_2", .family = ModelFamily::kMoe, .sequence = true},
        // Experts are divided.
        Case{.name = "moe_experts_2", .family = ModelFamily::kMoe, .experts = 2},
        Case{.name = "moe_experts_4", .family = ModelFamily::kMoe, .ranks = 4, .experts = 4},
        // Each half is on two ranks.
        Case{.name = "moe_experts_2_of_4", .family = ModelFamily::kMoe, .ranks = 4, .experts = 2},
        Case{.name = "moe_experts_middle_4",
             .family = ModelFamily::kMoe,
             .part = Part::kMiddle,
             .ranks = 4,
             .experts = 4},
        Case{.name = "moe_experts_sequence_4",
             .family = ModelFamily::kMoe,
             .ranks = 4,
             .sequence = true,
             .experts = 4},
        Case{.name = "moe_experts_sequence_2_of_4",
             .family = ModelFamily::kMoe,
             .ranks = 4,
             .qk_norm = true,
             .sequence = true,
             .experts = 2},
        Case{.name = "moe_experts_by_bias_2",
             .family = ModelFamily::kMoe,
             .experts = 2,
             .balance = Balance::kBias},
        Case{.name = "moe_experts_blocks_again_2",
             .family = ModelFamily::kMoe,
             .recompute = Recompute::kBlocks,
             .experts = 2},
        Case{.name = "moe_experts_documents_2",
             .family = ModelFamily::kMoe,
             .masked = true,
             .experts = 2},
        Case{.name = "moe_experts_bf16_2",
             .family = ModelFamily::kMoe,
             .dtype = ComputeDtype::kBf16,
             .experts = 2},
        Case{.name = "gpt_sequence_2", .sequence = true},
        Case{.name = "gpt_sequence_tied_4", .ranks = 4, .tied = true, .sequence = true},
        Case{.name = "gpt_sequence_middle_4", .part = Part::kMiddle, .ranks = 4, .sequence = true},
        Case{.name = "gpt_sequence_blocks_again_2",
             .sequence = true,
             .recompute = Recompute::kBlocks},
        Case{.name = "gpt_sequence_documents_4", .ranks = 4, .masked = true, .sequence = true},
        Case{.name = "gpt_sequence_loss_in_chunks_2",
             .part = Part::kLast,
             .sequence = true,
             .vocabulary = 70001,
             .rows = 4},
        Case{.name = "gpt_sequence_bf16_2", .dtype = ComputeDtype::kBf16, .sequence = true},
        Case{.name = "llama_sequence_4",
             .family = ModelFamily::kLlama,
             .ranks = 4,
             .sequence = true},
        Case{.name = "llama_sequence_qk_norm_4",
             .family = ModelFamily::kLlama,
             .ranks = 4,
             .qk_norm = true,
             .sequence = true},
        Case{.name = "llama_sequence_first_2",
             .family = ModelFamily::kLlama,
             .part = Part::kFirst,
             .sequence = true},
        Case{.name = "llama_sequence_last_4",
             .family = ModelFamily::kLlama,
             .part = Part::kLast,
             .ranks = 4,
             .sequence = true}),
    NameOf);

// Losses of many steps stay together: what ranks hold alike stays alike.
TEST(Group, LossesOfManyStepsAreThoseOfOneRank) {
  for (const ModelFamily family : {ModelFamily::kGpt, ModelFamily::kLlama, ModelFamily::kMoe}) {
    const uint32_t parts = family == ModelFamily::kMoe ? 4 : 1;
    const StageOptions options = OptionsOf({.family = family, .experts = parts});
    auto one = MakeWith(options, 1), four = MakeWith(options, 4);
    ASSERT_TRUE(one.ok() && four.ok()) << one.status() << four.status();
    Computed expected, got;
    for (uint64_t step = 1; step <= 30; ++step) {
      RunStep(**one, options, step, &expected);
      RunStep(**four, options, step, &got);
    }
    EXPECT_LT(std::ranges::min(expected.losses), expected.losses.front());
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-4 * expected.losses[i]) << i;
    }
  }
}

TEST(Group, ACheckpointFitsAnyNumberOfRanks) {
  const StageOptions options = OptionsOf({.family = ModelFamily::kLlama, .qk_norm = true});
  const Computed trained = OneStep(options, 1);
  StageSnapshot snapshot = trained.after;
  for (const uint32_t ranks : {2, 4, 1}) {
    auto stage = MakeWith(options, ranks);
    ASSERT_TRUE(stage.ok()) << stage.status();
    ASSERT_TRUE((*stage)->Restore(snapshot).ok());
    EXPECT_EQ((*stage)->steps(), 1);
    snapshot = (*stage)->Snapshot().value();
    ExpectSame(snapshot.parameters, trained.after.parameters);
    ExpectSame(snapshot.moments, trained.after.moments);
  }
}

TEST(Group, ACheckpointFitsAnyNumberOfPartsOfExperts) {
  const StageOptions whole = OptionsOf({.family = ModelFamily::kMoe});
  const Computed trained = OneStep(whole, 1);
  StageSnapshot snapshot = trained.after;
  for (const auto& [ranks, parts] :
       std::vector<std::pair<uint32_t, uint32_t>>{{2, 2}, {4, 2}, {4, 4}, {2, 1}}) {
    auto stage = MakeWith(OptionsOf({.family = ModelFamily::kMoe, .experts = parts}), ranks);
    ASSERT_TRUE(stage.ok()) << stage.status();
    ASSERT_TRUE((*stage)->Restore(snapshot).ok());
    snapshot = (*stage)->Snapshot().value();
    ExpectSame(snapshot.parameters, trained.after.parameters);
    ExpectSame(snapshot.moments, trained.after.moments);
  }
}

// What travels losslessly changes nothing: the sums of two ranks are the same in any order.
TEST(Group, LossesOfExpertsWhoseTokensTravelCompressedAreTheSame) {
  const StageOptions options =
      OptionsOf({.family = ModelFamily::kMoe, .dtype = ComputeDtype::kBf16, .experts = 2});
  auto plain = MakeWith(options, 2);
  auto zipped =
      MakeWith(options, 2, {.forward = GroupCollective::kZip, .backward = GroupCollective::kZip});
  ASSERT_TRUE(plain.ok() && zipped.ok()) << plain.status() << zipped.status();
  Computed expected, got;
  for (uint64_t step = 1; step <= 5; ++step) {
    RunStep(**plain, options, step, &expected);
    RunStep(**zipped, options, step, &got);
  }
  EXPECT_EQ(got.losses, expected.losses);
}

TEST(Group, EvaluatesAsOneRank) {
  const StageOptions options = OptionsOf({});
  const Batch batch(options, 3);
  double expected = 0, got = 0;
  ASSERT_TRUE((*MakeWith(options, 1))->Evaluate(Slice(), batch.input(), &expected).ok());
  ASSERT_TRUE((*MakeWith(options, 4))->Evaluate(Slice(), batch.input(), &got).ok());
  EXPECT_NEAR(got, expected, 1e-5);
}

// Samples take the next tokens by these. Ranks have shares of the vocabulary of 251 tokens.
TEST(Group, HasTheLogitsOfOneRank) {
  const std::vector<Stage::Place> places = {{.row = 1, .token = 5}, {.row = 0, .token = 40}};
  for (const bool sequence : {false, true}) {
    for (const ModelFamily family : {ModelFamily::kGpt, ModelFamily::kMoe}) {
      const StageOptions options =
          OptionsOf({.family = family, .sequence = sequence, .vocabulary = 256});
      const Batch batch(options, 3);
      auto one = *MakeWith(options, 1), two = *MakeWith(options, 2);
      const auto expected = one->EvaluateLogits(Slice(), batch.input(), places);
      const auto got = two->EvaluateLogits(Slice(), batch.input(), places);
      ASSERT_TRUE(expected.ok() && got.ok()) << expected.status() << got.status();
      ASSERT_EQ(expected->size(), places.size() * 251);
      EXPECT_THAT(*got, ::testing::Pointwise(::testing::FloatNear(1e-4f), *expected));
      // Nothing of it stays.
      Computed computed;
      RunStep(*two, options, 1, &computed);
    }
  }
}

TEST(Group, CountsTheTokensOfExpertsOnce) {
  const StageOptions options = OptionsOf({.family = ModelFamily::kMoe, .experts = 2});
  auto one = *MakeWith(options, 1), two = *MakeWith(options, 2);
  Computed computed;
  RunStep(*one, options, 1, &computed);
  RunStep(*two, options, 1, &computed);
  EXPECT_THAT(one->TokensOfExperts(), SizeIs(3));
  EXPECT_EQ(two->TokensOfExperts(), one->TokensOfExperts());
}

TEST(Group, LoadsWhatOneRankLoads) {
  StageOptions options = OptionsOf({.family = ModelFamily::kLlama});
  options.loads = true;
  std::vector<std::string> names;
  const auto read = [&](const model::PlacedParameter& parameter, std::span<float> values) {
    names.push_back(parameter.Name());
    const auto salt = static_cast<int>(names.back().size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = Noise(i, salt);
    return absl::OkStatus();
  };
  auto one = *MakeWith(options, 1), four = *MakeWith(options, 4);
  ASSERT_TRUE(one->Load(read).ok());
  const std::vector<std::string> names_of_one = std::exchange(names, {});
  ASSERT_TRUE(four->Load(read).ok());
  EXPECT_EQ(names, names_of_one);  // once for all ranks
  EXPECT_EQ(one->parameter_count(), four->parameter_count());
  ExpectSame(four->Snapshot()->parameters, one->Snapshot()->parameters);
}

TEST(Group, SaysWhyItCannotLoad) {
  StageOptions options = OptionsOf({.family = ModelFamily::kLlama});
  options.loads = true;
  auto stage = *MakeWith(options, 4);
  int left = 5;
  const Status status = stage->Load([&](const model::PlacedParameter&, std::span<float>) -> Status {
    if (--left > 0) return absl::OkStatus();
    return absl::DataLossError("the file ends early");
  });
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the file ends early"));
}

TEST(Group, RefusesWhatItCannotShare) {
  const auto refused = [](const StageOptions& options, uint32_t ranks) {
    auto stage = MakeWith(options, ranks);
    EXPECT_TRUE(absl::IsInvalidArgument(stage.status())) << stage.status();
    return std::string(stage.status().message());
  };
  EXPECT_THAT(refused(OptionsOf({}), 3), HasSubstr("heads"));
  EXPECT_THAT(refused(OptionsOf({.experts = 2}), 2), HasSubstr("or family moe"));
  EXPECT_THAT(refused(OptionsOf({.family = ModelFamily::kMoe, .experts = 3}), 2),
              HasSubstr("divides both the"));
}

TEST(Group, AWrongCallEndsNothing) {
  const StageOptions options = OptionsOf({});
  auto stage = *MakeWith(options, 2);
  const Batch batch(options, 1);
  Stage::Input input = batch.input();
  input.tokens = input.tokens.first(5);
  EXPECT_TRUE(absl::IsInvalidArgument(stage->Forward(Microbatch(0), input).status()));
  Computed computed;
  RunStep(*stage, options, 1, &computed);
  EXPECT_THAT(computed.losses, SizeIs(2));
}

// A communicator that fails at one of its calls.
TEST(Group, ARankThatFailsEndsTheCallOnAllAndIsNamed) {
  const StageOptions options = OptionsOf({});
  std::shared_ptr<collective::Member> last;
  auto stage = [&] {
    StageOptions with_ranks = options;
    with_ranks.ranks.resize(with_ranks.group.tensor = 4);
    return MakeGroupStage(with_ranks, [&](std::shared_ptr<collective::Member> member,
                                          const DeviceName& device, Deadline deadline) {
      if (member->place().rank == 2) last = member;
      return CommunicatorsFor(options)(std::move(member), device, deadline);
    });
  }();
  ASSERT_TRUE(stage.ok()) << stage.status();
  const Batch batch(options, 1);
  ASSERT_TRUE((*stage)->Forward(Microbatch(0), batch.input()).ok());
  last->End(absl::ResourceExhaustedError("no memory"));
  const MonoTime began = Now();
  const Status status = (*stage)->Backward(Microbatch(0), batch.gradient()).status();
  EXPECT_LT(Now() - began, absl::Seconds(10));
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 failed: no memory"));
  EXPECT_FALSE((*stage)->DropStep().ok());
}

}  // namespace
}  // namespace longhaul::worker
