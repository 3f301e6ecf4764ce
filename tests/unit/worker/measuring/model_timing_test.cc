// Times of layers that ranks share, by a group of CPU ranks.
#include "worker/measuring/model_timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "run/plan/proto/plan_proto.h"
#include "tests/unit/worker/tiny_run.h"
#include "worker/ranks/communicators.h"
#include "worker/stage/group/group_stage.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

StatusOr<std::unique_ptr<Stage>> MakeGroup(const StageOptions& options) {
  return MakeGroupStage(options, CommunicatorsFor(options));
}

std::vector<WorkerDevice> Devices(size_t count) {
  std::vector<WorkerDevice> devices(count);
  for (WorkerDevice& device : devices) device.description.set_kind("cpu");
  return devices;
}

// Hidden states in fp32: microbatches of one row with 8 tokens and 16 channels.
constexpr uint64_t kHiddenBytes = 8 * 16 * 4;

TEST(MeasureModel, TimesAGroupWithItsCollectives) {
  const auto times = MeasureModel(TinySpec({"group.tensor=2"}), 256, Devices(3), MakeGroup);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GT(times->block_forward(), 0);
  ASSERT_EQ(times->groups_size(), 1);
  const v1::GroupTimes& group = times->groups(0);
  EXPECT_EQ(group.tensor(), 2u);
  EXPECT_EQ(group.threads(), 1u);
  EXPECT_EQ(group.refused(), "");
  EXPECT_EQ(group.forward_collective(), "host");
  EXPECT_EQ(group.backward_collective(), "host");
  EXPECT_GT(group.optimizer_seconds_per_parameter(), 0);
  for (const v1::GroupPass* pass : {&group.embedding(), &group.block(), &group.head()}) {
    EXPECT_GT(pass->forward(), 0);
    EXPECT_GT(pass->collective_seconds(), 0);
    EXPECT_LT(pass->collective_seconds(), pass->forward() + pass->backward());
  }
  // Two sums there and two back, in each of which a rank sends a half twice.
  EXPECT_EQ(group.block().sent().all_reduce(), 4 * 2 * kHiddenBytes);
  EXPECT_EQ(group.block().sent().all_gather(), 0u);
  EXPECT_EQ(group.embedding().sent().all_reduce(), 2 * kHiddenBytes);
  EXPECT_GT(group.head().sent().all_reduce(), 2 * kHiddenBytes);
}

// Nothing is computed: the times were measured of all ranks together.
TEST(MeasureModel, AReplayHasTheTimesOfItsGroup) {
  const auto times = MeasureModel(
      TinySpec({"group.tensor=2", "validation.every=0",
                "replay={ source: a card, layers: { block_forward: 3ms, block_backward: 5ms, "
                "head_forward: 1ms }, codecs: real }"}),
      256, Devices(2), MakeGroup);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->groups_size(), 1);
  const v1::GroupTimes& group = times->groups(0);
  EXPECT_EQ(group.tensor(), 2u);
  EXPECT_EQ(group.block().forward(), 0.003);
  EXPECT_EQ(group.block().backward(), 0.005);
  EXPECT_EQ(group.head().forward(), 0.001);
  EXPECT_FALSE(group.block().has_collective_seconds());
}

TEST(MeasureModel, SequenceParallelRanksGatherAndScatter) {
  const auto times =
      MeasureModel(TinySpec({"group.tensor=2", "group.sequence=true"}), 256, Devices(2), MakeGroup);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->groups_size(), 1);
  EXPECT_EQ(times->groups(0).block().sent().reduce_scatter(), 4 * kHiddenBytes);
  EXPECT_EQ(times->groups(0).block().sent().all_gather(), 4 * kHiddenBytes);
  // Around blocks rows are gathered once more each way.
  EXPECT_EQ(times->groups(0).ends().sent().all_gather(), 2 * kHiddenBytes);
  EXPECT_EQ(FromProto(times->groups(0).ends().sent()).total(), 2 * kHiddenBytes);
}

constexpr const char* kOfExperts[] = {"model.family=moe", "model.kv_heads=2", "model.experts=4",
                                      "model.experts_per_token=2", "model.expert_intermediate=32"};

TEST(MeasureModel, TriesAllPartsOfExpertsThatAreLeftOpen) {
  std::vector<std::string> overrides(std::begin(kOfExperts), std::end(kOfExperts));
  overrides.insert(overrides.end(), {"group.tensor=auto", "group.expert=auto", "model.heads=4"});
  const auto times = MeasureModel(TinySpec(overrides), 256, Devices(4), MakeGroup);
  ASSERT_TRUE(times.ok()) << times.status();
  std::vector<std::pair<uint32_t, uint32_t>> timed;
  for (const v1::GroupTimes& group : times->groups()) {
    timed.emplace_back(group.tensor(), group.expert());
    const CollectiveBytes sent = FromProto(group.block().sent());
    EXPECT_EQ(group.refused().empty(), group.tensor() != 3) << group.refused();
    EXPECT_EQ(sent.all_to_all > 0, group.expert() > 1);
  }
  EXPECT_THAT(timed,
              ElementsAre(Pair(2, 1), Pair(2, 2), Pair(3, 1), Pair(4, 1), Pair(4, 2), Pair(4, 4)));
}

TEST(MeasureModel, RanksWithChannelsOfTheirOwnSendTheOthers) {
  const auto times = MeasureModel(TinySpec({"group.tensor=2", "group.p=0.5", "model.family=llama",
                                            "model.kv_heads=2", "model.intermediate=32"}),
                                  256, Devices(2), MakeGroup);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->groups_size(), 1);
  // Half of the channels in four sums of each block.
  EXPECT_GE(times->groups(0).block().sent().all_reduce(), 4 * kHiddenBytes);
  EXPECT_LT(times->groups(0).block().sent().all_reduce(), 8 * kHiddenBytes);
}

TEST(MeasureModel, TriesAllNumbersOfRanksAndSaysWhyOneCannot) {
  const auto times =
      MeasureModel(TinySpec({"group.tensor=auto", "model.heads=4"}), 256, Devices(4), MakeGroup);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->groups_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(times->groups(i).tensor(), static_cast<uint32_t>(i + 2));
  EXPECT_THAT(times->groups(1).refused(), HasSubstr("divides its 4 heads, got 3"));
  EXPECT_FALSE(times->groups(1).has_block());
  EXPECT_GT(times->groups(0).block().forward(), 0);
  EXPECT_GT(times->groups(2).block().forward(), 0);
}

TEST(MeasureModel, OneRankHasNoGroup) {
  for (const char* group : {"group.tensor=1", "group.tensor=auto"}) {
    const auto times = MeasureModel(TinySpec({group}), 256, Devices(1), MakeGroup);
    ASSERT_TRUE(times.ok()) << times.status();
    EXPECT_EQ(times->groups_size(), 0);
  }
}

TEST(MeasureModel, ANumberThatTheRunFileAsksForHasToWork) {
  RunSpec spec = TinySpec();
  spec.group.tensor = 3;  // of two heads, as no run file says
  const auto times = MeasureModel(spec, 256, Devices(3), MakeGroup);
  EXPECT_EQ(times.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(times.status())), HasSubstr("3 ranks: "));
}

}  // namespace
}  // namespace longhaul::worker
