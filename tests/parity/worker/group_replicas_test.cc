// What replicas see of a stage that ranks share is what they see of a stage of one rank: whole
// parameters and gradients, each number once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/parity/worker/group_cases.h"
#include "worker/stage/snapshot/snapshot_shards.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

void RunPasses(Stage& stage, const StageOptions& options, uint64_t step) {
  for (uint32_t m = 0; m < options.train.microbatches; ++m) {
    const Batch batch(options, static_cast<int>(10 * step + m));
    ASSERT_TRUE(stage.Forward(Microbatch(m), batch.input()).ok());
    ASSERT_TRUE(stage.Backward(Microbatch(m), batch.gradient()).ok());
  }
}

// What an owner's optimizer makes of values does not matter here; all stages get the same.
void Change(const std::vector<SharedParameter>& shared, int salt) {
  for (const SharedParameter& one : shared) {
    for (size_t i = 0; i < one.value.size(); ++i) one.value[i] += 1e-2f * Noise(i, salt);
  }
}

void ExpectHolds(const Stage& stage, const std::vector<std::vector<float>>& values) {
  const StageSnapshot snapshot = stage.Snapshot().value();
  ASSERT_EQ(snapshot.parameters.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(snapshot.parameters[i].values, values[i]) << snapshot.parameters[i].name;
  }
}

std::vector<std::vector<float>> ValuesOf(const std::vector<SharedParameter>& shared) {
  std::vector<std::vector<float>> values;
  for (const SharedParameter& one : shared) values.emplace_back(one.value.begin(), one.value.end());
  return values;
}

double SumOfSquares(const std::vector<SharedParameter>& shared) {
  double sum = 0;
  for (const SharedParameter& one : shared) {
    if (one.counted_elsewhere) continue;
    for (const float value : one.gradient) sum += static_cast<double>(value) * value;
  }
  return sum;
}

void ExpectAlike(const std::vector<SharedParameter>& got,
                 const std::vector<SharedParameter>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(expected[i].name);
    EXPECT_EQ(got[i].name, expected[i].name);
    EXPECT_EQ(got[i].shape, expected[i].shape);
    EXPECT_EQ(got[i].decays, expected[i].decays);
    EXPECT_EQ(got[i].block_matrices, expected[i].block_matrices);
    EXPECT_EQ(got[i].counted_elsewhere, expected[i].counted_elsewhere);
    ASSERT_EQ(got[i].gradient.size(), expected[i].gradient.size());
    // The bias of keys has no gradient but rounding.
    if (got[i].name.find("k_proj.bias") != std::string::npos) continue;
    EXPECT_LE(RelativeError({got[i].gradient.begin(), got[i].gradient.end()},
                            {expected[i].gradient.begin(), expected[i].gradient.end()}),
              1e-5);
  }
  EXPECT_EQ(ValuesOf(got), ValuesOf(expected));
}

class GroupReplicas : public ::testing::TestWithParam<Case> {};

TEST_P(GroupReplicas, SeeWhatTheySeeOfOneRank) {
  StageOptions options = OptionsOf(GetParam());
  options.shares_step = true;
  auto one = *MakeWith(options, 1), several = *MakeWith(options, GetParam().ranks);
  for (uint64_t step = 1; step <= 2; ++step) {
    RunPasses(*one, options, step);
    RunPasses(*several, options, step);
    const uint64_t of_ranks = several->memory_bytes();
    const auto expected = one->SharedParameters(SharedIn::kHost),
               got = several->SharedParameters(SharedIn::kHost);
    ASSERT_TRUE(expected.ok() && got.ok()) << expected.status() << got.status();
    ExpectAlike(*got, *expected);
    // Whole values and gradients, as planner/memory.h counts them.
    const uint64_t joined = 2 * sizeof(float) * several->parameter_count();
    EXPECT_EQ(several->memory_bytes() - of_ranks, step == 1 ? joined : 0);
    // Ranks count what several of them hold once, and so does who sums whole gradients.
    const double squares = several->AddSquaredGradientNorm(0)->own;
    EXPECT_NEAR(SumOfSquares(*got) / squares, 1, 1e-9);
    for (const auto* shared : {&*expected, &*got}) Change(*shared, static_cast<int>(step));
    const std::vector<std::vector<float>> wanted = ValuesOf(*got);
    ASSERT_TRUE(one->EndSharedStep(Step(step)).ok());
    ASSERT_TRUE(several->EndSharedStep(Step(step)).ok());
    EXPECT_EQ(several->steps(), step);
    ExpectHolds(*several, wanted);
    EXPECT_TRUE(several->Snapshot()->moments.empty());
  }
}

TEST_P(GroupReplicas, LeaveASkippedStepBehind) {
  StageOptions options = OptionsOf(GetParam());
  options.shares_step = true;
  auto stage = *MakeWith(options, GetParam().ranks);
  RunPasses(*stage, options, 1);
  const auto before = ValuesOf(*stage->SharedParameters(SharedIn::kHost));
  ASSERT_TRUE(stage->SkipStep(Step(1)).ok());
  ExpectHolds(*stage, before);
  const auto after = *stage->SharedParameters(SharedIn::kHost);
  for (const SharedParameter& one : after) {
    EXPECT_THAT(one.gradient, Each(0.0f)) << one.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, GroupReplicas,
    ::testing::Values(
        Case{.name = "gpt_2"}, Case{.name = "gpt_tied_4", .ranks = 4, .tied = true},
        Case{.name = "gpt_middle_sequence_4", .part = Part::kMiddle, .ranks = 4, .sequence = true},
        Case{.name = "gpt_last_2", .part = Part::kLast},
        // Each of two heads of keys and values is held by two ranks.
        Case{.name = "llama_qk_norm_4", .family = ModelFamily::kLlama, .ranks = 4, .qk_norm = true},
        Case{.name = "moe_2", .family = ModelFamily::kMoe},
        Case{.name = "moe_experts_2_of_4", .family = ModelFamily::kMoe, .ranks = 4, .experts = 2}),
    NameOf);

// Between steps of an optimizer of their own.
TEST(GroupTrainedApart, TakesWhatReplicasHaveMerged) {
  const StageOptions options = OptionsOf({.family = ModelFamily::kLlama});
  auto stage = *MakeWith(options, 4);
  Computed computed;
  RunStep(*stage, options, 1, &computed);
  const StageSnapshot stepped = stage->Snapshot().value();
  const auto shared = stage->SharedParameters(SharedIn::kHost);
  ASSERT_TRUE(shared.ok()) << shared.status();
  Change(*shared, 1);
  const auto wanted = ValuesOf(*shared);
  ASSERT_TRUE(stage->TakeSharedValues().ok());
  ExpectHolds(*stage, wanted);
  EXPECT_EQ(stage->steps(), 1);
  ExpectSame(stage->Snapshot()->moments, stepped.moments);
  RunStep(*stage, options, 2, &computed);
}

// With channels of their own, ranks are alike in what they all hold.
TEST(GroupWithOwnChannels, TakesAStepOfReplicas) {
  StageOptions options = OptionsOf({});
  options.group.shared_channels = 0.5;
  options.shares_step = true;
  auto stage = *MakeWith(options, 2);
  RunPasses(*stage, options, 1);
  const auto shared = stage->SharedParameters(SharedIn::kHost);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_NEAR(SumOfSquares(*shared) / stage->AddSquaredGradientNorm(0)->own, 1, 1e-9);
  Change(*shared, 1);
  const auto wanted = ValuesOf(*shared);
  ASSERT_TRUE(stage->EndSharedStep(Step(1)).ok());
  ExpectHolds(*stage, wanted);
}

// A checkpoint of replicas: moments and masters in pieces, residuals of each replica.
StageSnapshot InPieces(const StageSnapshot& whole) {
  StageSnapshot cut{.step = whole.step, .parameters = whole.parameters, .moments = {}};
  const auto add_piece = [&cut](std::string_view name, std::string_view suffix, size_t first,
                                std::span<const float> values) {
    cut.moments.push_back({PieceName(std::string(name), first, suffix),
                           {static_cast<int64_t>(values.size())},
                           {values.begin(), values.end()}});
  };
  for (const NamedArray& moment : whole.moments) {
    const size_t dot = moment.name.rfind('.'), half = moment.values.size() / 2;
    const auto name = std::string_view(moment.name).substr(0, dot);
    const auto suffix = std::string_view(moment.name).substr(dot);
    const std::span<const float> values(moment.values);
    add_piece(name, suffix, half, values.subspan(half));
    add_piece(name, suffix, 0, values.first(half));
  }
  const NamedArray& first = whole.parameters.front();
  std::vector<float> master = first.values;
  for (float& value : master) value += 1;
  add_piece(first.name, kMaster, 0, master);
  cut.moments.push_back({first.name + std::string(kResidual) + "-0-of-2", {3}, {1, 2, 3}});
  return cut;
}

TEST(GroupCheckpoints, OfReplicasFitAnyNumberOfRanks) {
  StageOptions options = OptionsOf({.family = ModelFamily::kLlama});
  const Computed trained = OneStep(options, 1);
  const StageSnapshot pieces = InPieces(trained.after);
  std::vector<NamedArray> masters = trained.after.parameters;
  for (float& value : masters.front().values) value += 1;
  for (const uint32_t ranks : {1, 2, 4}) {
    options.shares_step = false;
    auto alone = *MakeWith(options, ranks);
    const Status status = alone->Restore(pieces);
    ASSERT_TRUE(status.ok()) << status;
    ExpectSame(alone->Snapshot()->parameters, masters);
    ExpectSame(alone->Snapshot()->moments, trained.after.moments);
    // One of several replicas computes with what all have.
    options.shares_step = true;
    auto replica = *MakeWith(options, ranks);
    ASSERT_TRUE(replica->Restore(pieces).ok());
    ExpectSame(replica->Snapshot()->parameters, trained.after.parameters);
  }
  StageSnapshot incomplete = pieces;
  incomplete.moments.erase(incomplete.moments.begin());
  options.shares_step = false;
  EXPECT_THAT(std::string((*MakeWith(options, 2))->Restore(incomplete).message()),
              HasSubstr("files of a replica are missing"));
}

}  // namespace
}  // namespace longhaul::worker
