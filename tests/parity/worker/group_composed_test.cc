// What composes with ranks that share a stage computes what one rank computes, within rounding:
// Muon, sequence chunks, steps that overlap, and a matrix that two stages hold.
#include "tests/parity/worker/group_composed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/parity/worker/group_cases.h"
#include "tests/parity/worker/slice_cases.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

struct MuonCase {
  Case of_group;
  bool lora = false;
};
void PrintTo(const MuonCase& one, std::ostream* out) {
  *out << one.of_group.name;
}

StageOptions MuonOptionsOf(const MuonCase& one) {
  StageOptions options = OptionsOf(one.of_group);
  options.train.optimizer.kind = OptimizerKind::kMuon;
  options.train.optimizer.weight_decay = 0.1;
  if (one.lora) {
    options.model.lora = LoraSpec{.rank = 4, .alpha = 8, .targets = {}};
    options.model.lora->targets = model::TargetsOf(options.model);
  }
  return options;
}

class GroupMuon : public ::testing::TestWithParam<MuonCase> {};

// An update has singular values of about 1 whatever the gradient's are, and those that are tiny in
// the gradient carry its rounding. So updates are compared more loosely than momenta.
TEST_P(GroupMuon, UpdatesAreThoseOfOneRank) {
  const MuonCase& one = GetParam();
  const StageOptions options = MuonOptionsOf(one);
  const Computed expected = OneStep(options, 1), got = OneStep(options, one.of_group.ranks);
  ExpectSame(got.before.parameters, expected.before.parameters);
  ExpectNear(got, expected, 1e-5);
  ASSERT_EQ(got.after.moments.size(), expected.after.moments.size());
  size_t momenta = 0;
  for (size_t i = 0; i < expected.after.moments.size(); ++i) {
    const NamedArray& moment = expected.after.moments[i];
    ASSERT_EQ(got.after.moments[i].name, moment.name);
    if (!moment.name.ends_with(".momentum")) continue;
    ++momenta;
    EXPECT_LE(RelativeError(got.after.moments[i].values, moment.values), 1e-5) << moment.name;
  }
  EXPECT_GT(momenta, 0u);
  for (size_t i = 0; i < expected.after.parameters.size(); ++i) {
    const NamedArray &before = expected.before.parameters[i], &after = expected.after.parameters[i];
    // The bias of keys has no gradient but rounding, of which AdamW makes whole steps.
    if (after.name.find("k_proj.bias") != std::string::npos) continue;
    std::vector<float> change = after.values, got_change = got.after.parameters[i].values;
    for (size_t k = 0; k < change.size(); ++k) {
      change[k] -= before.values[k];
      got_change[k] -= before.values[k];
    }
    if (after.shape.size() < 2) continue;
    EXPECT_LE(RelativeError(got_change, change), 1e-3) << after.name;
  }
}

TEST_P(GroupMuon, RepeatsToTheBit) {
  const StageOptions options = MuonOptionsOf(GetParam());
  const uint32_t ranks = GetParam().of_group.ranks;
  const Computed a = OneStep(options, ranks), b = OneStep(options, ranks);
  ExpectSame(a.after.parameters, b.after.parameters);
  ExpectSame(a.after.moments, b.after.moments);
}

INSTANTIATE_TEST_SUITE_P(
    Stages, GroupMuon,
    ::testing::Values(
        // Queries, keys and values are stacked in one parameter.
        MuonCase{{.name = "gpt_2"}}, MuonCase{{.name = "gpt_4", .ranks = 4}},
        MuonCase{{.name = "gpt_middle_sequence_2", .part = Part::kMiddle, .sequence = true}},
        // Each of two heads of keys and values is held by two ranks.
        MuonCase{{.name = "llama_4", .family = ModelFamily::kLlama, .ranks = 4}},
        MuonCase{{.name = "phi3_2", .family = ModelFamily::kLlama, .kin = "phi3"}},
        // Every rank has all experts whole; then each its own; then each half is on two ranks.
        MuonCase{{.name = "moe_2", .family = ModelFamily::kMoe}},
        MuonCase{{.name = "moe_experts_2", .family = ModelFamily::kMoe, .experts = 2}},
        MuonCase{
            {.name = "moe_experts_2_of_4", .family = ModelFamily::kMoe, .ranks = 4, .experts = 2}},
        MuonCase{{.name = "llama_sequence_2", .family = ModelFamily::kLlama, .sequence = true}},
        MuonCase{{.name = "gpt_lora_2"}, /*lora=*/true},
        MuonCase{{.name = "llama_lora_4", .family = ModelFamily::kLlama, .ranks = 4}, true}),
    [](const auto& test) { return test.param.of_group.name; });

TEST(GroupMuon, ManyStepsAreThoseOfOneRankAndCheckpointsFit) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kMoe}) {
    const uint32_t parts = family == ModelFamily::kMoe ? 2 : 1;
    const StageOptions options = MuonOptionsOf({{.family = family, .experts = parts}});
    auto one = MakeWith(options, 1), two = MakeWith(options, 2);
    ASSERT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
    Computed expected, got;
    for (uint64_t step = 1; step <= 10; ++step) {
      RunStep(**one, options, step, &expected);
      RunStep(**two, options, step, &got);
    }
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-5 * expected.losses[i]) << i;
    }
    StageSnapshot snapshot = (*two)->Snapshot().value();
    const StageSnapshot written = snapshot;
    for (const uint32_t ranks : {4, 1, 2}) {
      auto stage = MakeWith(options, ranks);
      ASSERT_TRUE(stage.ok()) << stage.status();
      const Status restored = (*stage)->Restore(snapshot);
      ASSERT_TRUE(restored.ok()) << restored;
      snapshot = (*stage)->Snapshot().value();
      ExpectSame(snapshot.parameters, written.parameters);
      ExpectSame(snapshot.moments, written.moments);
    }
    // Goes on to the bit.
    auto again = MakeWith(options, 2);
    ASSERT_TRUE(again.ok() && (*again)->Restore(snapshot).ok());
    Computed resumed, unbroken;
    RunStep(**again, options, 11, &resumed);
    RunStep(**two, options, 11, &unbroken);
    EXPECT_EQ(resumed.losses, unbroken.losses);
    ExpectSame((*again)->Snapshot()->parameters, (*two)->Snapshot()->parameters);
  }
}

TEST(GroupMuon, RefusesChannelsOfRanksTheirOwn) {
  StageOptions options = MuonOptionsOf({});
  options.group.shared_channels = 0.5;
  const auto stage = MakeWith(options, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(stage.status())) << stage.status();
  EXPECT_THAT(std::string(stage.status().message()), HasSubstr("muon updates whole matrices"));
}

struct GroupSliceCase {
  SliceCase of_slices;
  uint32_t ranks = 2;
  bool sequence = false;
};
void PrintTo(const GroupSliceCase& one, std::ostream* out) {
  *out << one.of_slices.name;
}

class GroupSlices : public ::testing::TestWithParam<GroupSliceCase> {};

TEST_P(GroupSlices, LossesAndGradientsAreThoseOfWholeMicrobatchesOfOneRank) {
  const GroupSliceCase& one = GetParam();
  const uint64_t steps = one.of_slices.lora ? 2 : 1;
  const OfSlices whole = SlicedChain(one.of_slices, 1).Train(steps);
  for (const uint32_t slices : {4u}) {
    const OfSlices cut =
        SlicedChain(one.of_slices, slices, {}, OfRanks(one.ranks, {.sequence = one.sequence}))
            .Train(steps);
    SCOPED_TRACE(fmt::format("{} slices", slices));
    ExpectThoseOfWhole(cut, whole, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GroupSlices,
    ::testing::Values(
        GroupSliceCase{{"Gpt", ModelFamily::kGpt}},
        GroupSliceCase{{"GptByBlocks", ModelFamily::kGpt, Recompute::kBlocks}},
        GroupSliceCase{{"GptByStageSequence", ModelFamily::kGpt, Recompute::kStage}, 2, true},
        GroupSliceCase{{"Llama4", ModelFamily::kLlama}, 4},
        GroupSliceCase{{"LlamaSequence4", ModelFamily::kLlama}, 4, true},
        GroupSliceCase{{"LlamaDocumentsByBlocks", ModelFamily::kLlama, Recompute::kBlocks, true}},
        GroupSliceCase{
            {"LlamaPublished", ModelFamily::kLlama, Recompute::kNone, false, true}, 2, true},
        GroupSliceCase{{"GptLora", ModelFamily::kGpt, Recompute::kNone, false, false, true}},
        GroupSliceCase{
            {"LlamaLora", ModelFamily::kLlama, Recompute::kStage, false, false, true}, 4, true}),
    [](const auto& test) { return test.param.of_slices.name; });

// Channels of ranks' own are another model, which slices do not change.
TEST(GroupSlicesTest, AreThoseOfWholeMicrobatchesWithChannelsOfRanksTheirOwn) {
  const SliceCase one{"Gpt", ModelFamily::kGpt};
  const MakeStage make = OfRanks(2, {.shared_channels = 0.5});
  const OfSlices whole = SlicedChain(one, 1, {}, make).Train(1);
  ExpectThoseOfWhole(SlicedChain(one, 4, {}, make).Train(1), whole, 1e-5);
}

TEST(GroupSlicesTest, RepeatToTheBit) {
  const SliceCase one{"Llama", ModelFamily::kLlama};
  const OfSlices first = SlicedChain(one, 4, {}, OfRanks(2)).Train(2),
                 again = SlicedChain(one, 4, {}, OfRanks(2)).Train(2);
  EXPECT_EQ(first.losses, again.losses);
  EXPECT_EQ(first.moments, again.moments);
}

TEST(GroupSlicesTest, AreRefusedWhereRanksCannotShareTheirTokens) {
  StageOptions options = OptionsOf({.sequence = true});
  options.slices = 32;  // of two tokens each
  EXPECT_TRUE(MakeWith(options, 2).ok());
  EXPECT_THAT(std::string(MakeWith(options, 4).status().message()),
              HasSubstr("a slice's 2 tokens"));
}

TEST(GroupOverlap, LossesAreThoseOfOneRank) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    for (const bool sequence : {false, true}) {
      StageOptions options = OptionsOf({.family = ModelFamily::kLlama, .sequence = sequence});
      options.train.optimizer.kind = kind;
      const std::vector<double> one = OverlappedLosses(options, 1, 5),
                                two = OverlappedLosses(options, 2, 5);
      ASSERT_EQ(one.size(), two.size());
      for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-5 * one[i]) << i;
      EXPECT_EQ(OverlappedLosses(options, 2, 5), two);
    }
  }
}

// No model of one rank has channels of the ranks' own, so the losses are not compared with such a
// model's. They tell instead which parameters a step was computed with: those before the first
// update, and from step 3 on those that lack one update.
TEST(GroupOverlap, LosesNoUpdateWithChannelsOfRanksTheirOwn) {
  StageOptions options = OptionsOf({.family = ModelFamily::kLlama});
  options.group.shared_channels = 0.5;
  const std::vector<double> losses = OverlappedLosses(options, 2, 3);
  auto plain = *MakeWith(options, 2);
  const auto expect_step = [&](uint64_t step) {
    for (uint32_t m = 0; m < options.train.microbatches; ++m) {
      const Batch batch(options, static_cast<int>(10 * step + m));
      double loss = 0;
      ASSERT_TRUE(plain->Evaluate(Microbatch(m), batch.input(), &loss).ok());
      EXPECT_EQ(losses[(step - 1) * options.train.microbatches + m], loss) << step;
    }
  };
  expect_step(1);
  expect_step(2);
  Computed computed;
  RunStep(*plain, options, 1, &computed);
  expect_step(3);
}

// Each end adds the rows of the other: first some with gaps between them, then the rest.
void SumTiedRows(TiedMatrix& a, TiedMatrix& b) {
  ASSERT_EQ(a.rows(), b.rows());
  std::vector<int32_t> some, rest;
  for (int32_t row = 0; row < static_cast<int32_t>(a.rows()); ++row) {
    (row % 7 == 3 ? some : rest).push_back(row);
  }
  for (const std::vector<int32_t>& rows : {some, rest}) {
    std::vector<float> of_a(rows.size() * a.channels()), of_b(of_a.size());
    ASSERT_EQ(a.ReadGradient(rows, of_a), absl::OkStatus());
    ASSERT_EQ(b.ReadGradient(rows, of_b), absl::OkStatus());
    ASSERT_EQ(a.AddToGradient(rows, of_b), absl::OkStatus());
    ASSERT_EQ(b.AddToGradient(rows, of_a), absl::OkStatus());
  }
}

const NamedArray& ArrayOf(const std::vector<NamedArray>& arrays, const std::string& name) {
  for (const NamedArray& array : arrays) {
    if (array.name == name) return array;
  }
  ADD_FAILURE() << name << " is missing";
  return arrays.front();
}

// With channels of ranks' own, which are another model: as in one stage of as many ranks.
TEST(GroupTied, AMatrixInTwoStagesLearnsAsInOneOfOneRank) {
  for (const auto& [ranks, shared] : {std::pair(2u, 1.0), std::pair(4u, 1.0), std::pair(2u, 0.5)}) {
    SCOPED_TRACE(fmt::format("{} ranks share {} of the channels", ranks, shared));
    StageOptions options = OptionsOf({.family = ModelFamily::kLlama, .tied = true});
    options.group.shared_channels = shared;
    options.model.layers = options.layers = 2;
    auto whole = *MakeWith(options, shared < 1 ? ranks : 1);
    options.layers = 1;
    options.last = false;
    auto first = *MakeWith(options, ranks);
    options.first = false;
    options.last = true;
    options.first_layer = 1;
    auto last = *MakeWith(options, ranks);
    EXPECT_EQ(whole->tied_matrix(), nullptr);
    ASSERT_NE(first->tied_matrix(), nullptr);
    ASSERT_NE(last->tied_matrix(), nullptr);
    for (uint64_t step = 1; step <= 5; ++step) {
      Computed expected;
      options.first = options.last = true;
      RunStep(*whole, options, step, &expected);
      for (uint32_t m = 0; m < options.train.microbatches; ++m) {
        const Batch batch(options, static_cast<int>(10 * step + m));
        const auto hidden = first->Forward(Microbatch(m), batch.input());
        ASSERT_TRUE(hidden.ok()) << hidden.status();
        Stage::Input input = batch.input();
        input.activation = (*hidden)->view;
        ASSERT_TRUE(last->Forward(Microbatch(m), input).ok());
        EXPECT_NEAR(last->Loss(Microbatch(m)).value(), expected.losses[m],
                    1e-5 * expected.losses[m]);
        const auto gradient = last->Backward(Microbatch(m), {});
        ASSERT_TRUE(gradient.ok()) << gradient.status();
        ASSERT_TRUE(first->Backward(Microbatch(m), (*gradient)->view).ok());
      }
      SumTiedRows(*first->tied_matrix(), *last->tied_matrix());
      const double own = last->AddSquaredGradientNorm(0).value().sum;
      EXPECT_NEAR(first->AddSquaredGradientNorm(own).value().sum / expected.squared_norm, 1, 1e-5);
      for (Stage* stage : {first.get(), last.get()}) {
        ASSERT_EQ(stage->OptimizerStep(Step(step), options.train.optimizer.lr, 1),
                  absl::OkStatus());
      }
    }
    // Both have the same numbers, to the bit.
    const StageSnapshot above = first->Snapshot().value(), below = last->Snapshot().value();
    const std::string& name = first->tied_matrix()->name();
    EXPECT_EQ(ArrayOf(above.parameters, name).values, ArrayOf(below.parameters, name).values);
    for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
      EXPECT_EQ(ArrayOf(above.moments, name + moment).values,
                ArrayOf(below.moments, name + moment).values);
    }
  }
}

}  // namespace
}  // namespace longhaul::worker
