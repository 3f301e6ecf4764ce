// The number of ranks of a stage, where the plan chooses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/auto_keys.h"
#include "planner/memory.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Workers with four devices: 2 ranks are faster than one, 3 cannot be, 4 take `four` a block.
PlanRequest Auto(double four) {
  PlanRequest request = Groups(2, /*devices=*/4, /*ranks=*/1);
  request.spec.group.tensor_auto = true;
  for (CandidateWorker& worker : request.workers) {
    worker.device_memory_bytes.assign(4, worker.memory_bytes);
    TimeGroup(2, 0.006, 0.012, &worker);
    v1::GroupTimes& refused = *worker.times.add_groups();
    refused.set_tensor(3);
    refused.set_refused("3 do not divide its 8 heads");
    TimeGroup(4, four, 2 * four, &worker);
  }
  return request;
}

TEST(Ranks, ChoosesTheNumberOfRanksWithTheFastestStep) {
  for (const double four : {0.004, 0.008}) {
    const PlanRequest request = Auto(four);
    const uint32_t best = four < 0.006 ? 4 : 2;
    const auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const Cell& cell : plan->assignment.cells) {
      EXPECT_EQ(cell.group.tensor, best);
      EXPECT_EQ(cell.devices.size(), best);
    }
    const auto spec = ParseRunSpec(plan->assignment.run_yaml, "run.yaml", {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->group.tensor, best);
    EXPECT_FALSE(spec->group.tensor_auto);

    const std::vector<RanksPrediction>& tried = plan->prediction.ranks;
    ASSERT_EQ(tried.size(), 4u);
    for (size_t i = 0; i < tried.size(); ++i) EXPECT_EQ(tried[i].tensor, i + 1);
    EXPECT_EQ(tried[2].refused, "3 ranks on worker w0: 3 do not divide its 8 heads");
    EXPECT_DOUBLE_EQ(tried[best - 1].step_seconds, plan->prediction.step_seconds);
    EXPECT_GT(tried[0].step_seconds, tried[1].step_seconds);
    EXPECT_GT(tried[0].memory_bytes, tried[3].memory_bytes);
    EXPECT_THAT(plan->explanation,
                AllOf(HasSubstr("group.tensor is auto: " + std::to_string(best) +
                                " ranks a stage make the fastest step; 1 rank would take"),
                      HasSubstr("3 ranks cannot")));
  }
}

TEST(Ranks, TakesMoreRanksThanAreFastestWhereMemoryWantsThem) {
  PlanRequest request = Auto(0.02);  // slower than one
  request.spec.model.hidden = 1024;
  RunSpec two = request.spec;
  two.group = request.spec.group.Settled(2, 1);
  const uint64_t enough_for_two = MemoryOf(two, 256, 4, false, true).At(1);
  for (CandidateWorker& worker : request.workers) {
    worker.memory_bytes = enough_for_two * 11 / 10;
    worker.device_memory_bytes.assign(4, worker.memory_bytes);
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.cells[0].group.tensor, 2u);
  EXPECT_THAT(plan->prediction.ranks[0].refused, HasSubstr("no other split fits"));
  // The fourth device has less, and counts where it is used.
  for (CandidateWorker& worker : request.workers) worker.device_memory_bytes[3] /= 1000;
  EXPECT_THAT(MakePlan(request)->prediction.ranks[3].refused, HasSubstr("no other split fits"));
  for (CandidateWorker& worker : request.workers) worker.device_memory_bytes.assign(4, 1000);
  for (CandidateWorker& worker : request.workers) worker.memory_bytes = 1000;
  EXPECT_THAT(std::string(Message(MakePlan(request).status())),
              AllOf(HasSubstr("no number of ranks can share the stages: 1 rank: stage"),
                    HasSubstr("; 3 ranks: 3 ranks on worker w0: 3 do not divide its 8 heads")));
}

// Workers with four devices, and how long a block takes for each number of ranks and of parts.
PlanRequest OfExperts() {
  PlanRequest request = Groups(2, /*devices=*/4, /*ranks=*/1);
  ModelSpec& model = request.spec.model;
  model.family = ModelFamily::kMoe;
  model.kv_heads = model.heads;
  model.experts = 6;
  model.experts_per_token = 2;
  model.expert_intermediate = 64;
  request.spec.group.tensor_auto = request.spec.group.expert_auto = true;
  for (CandidateWorker& worker : request.workers) {
    const auto time = [&worker](uint32_t ranks, uint32_t parts, double forward) {
      v1::GroupTimes& group = TimeGroup(ranks, forward, 2 * forward, &worker);
      group.set_expert(parts);
      if (parts > 1) group.mutable_block()->mutable_sent()->set_all_to_all(5000);
    };
    time(2, 1, 0.007);
    time(2, 2, 0.006);
    time(4, 1, 0.005);
    time(4, 2, 0.003);
    v1::GroupTimes& refused = *worker.times.add_groups();
    refused.set_tensor(3);
    refused.set_expert(1);
    refused.set_refused("3 do not divide its 8 heads");
    *worker.times.add_groups() = refused;
    worker.times.mutable_groups()->rbegin()->set_expert(3);
  }
  return request;
}

TEST(Ranks, ChoosesThePartsOfExpertsWithTheFastestStep) {
  const auto plan = MakePlan(OfExperts());
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const Cell& cell : plan->assignment.cells) EXPECT_EQ(cell.group, (Group{4, 2}));
  const auto spec = ParseRunSpec(plan->assignment.run_yaml, "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->group, (GroupSpec{.tensor = 4, .expert = 2}));

  const std::vector<RanksPrediction>& tried = plan->prediction.ranks;
  std::vector<std::pair<uint32_t, uint32_t>> groups;
  for (const RanksPrediction& one : tried) groups.emplace_back(one.tensor, one.expert);
  EXPECT_THAT(groups, ElementsAre(Pair(1, 1), Pair(2, 1), Pair(2, 2), Pair(3, 1), Pair(3, 3),
                                  Pair(4, 1), Pair(4, 2)));
  EXPECT_EQ(tried[4].refused,
            "3 ranks with experts in 3 parts on worker w0: 3 do not divide its 8 heads");
  EXPECT_DOUBLE_EQ(tried[6].step_seconds, plan->prediction.step_seconds);
  EXPECT_GT(tried[5].memory_bytes, tried[6].memory_bytes);  // all experts on each rank
  EXPECT_THAT(plan->explanation,
              AllOf(HasSubstr("group.tensor and group.expert are auto: 4 ranks with experts in 2 "
                              "parts a stage make the fastest step; 1 rank would take"),
                    HasSubstr("2 ranks with all experts each would take"),
                    HasSubstr("3 ranks with experts in 3 parts cannot"),
                    HasSubstr("A block's 6 experts are in 2 parts (group.expert): 3 on each rank."),
                    HasSubstr("tokens on their way to experts and back")));
  // 4 blocks of 16 microbatches.
  EXPECT_EQ(plan->cells[0].group->sent.all_to_all, 4 * 5000u);
}

TEST(Ranks, ChoosesPartsAloneWhereTheNumberOfRanksIsGiven) {
  PlanRequest request = OfExperts();
  request.spec.group.tensor_auto = false;
  request.spec.group.tensor = 2;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.cells[0].group, (Group{2, 2}));
  EXPECT_EQ(plan->prediction.ranks.size(), 2u);
  EXPECT_THAT(plan->explanation,
              HasSubstr("group.expert is auto: 2 ranks with experts in 2 parts a stage make the "
                        "fastest step; 2 ranks with all experts each would take"));
  request.spec.group.tensor = 8;
  EXPECT_THAT(std::string(Message(MakePlan(request).status())),
              AllOf(HasSubstr("expected workers with 8 devices"), Not(HasSubstr("auto"))));
}

TEST(Ranks, NumbersThatPartsDoNotDivideCannotBe) {
  PlanRequest request = OfExperts();
  request.spec.group.expert_auto = false;
  request.spec.group.expert = 2;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.cells[0].group, (Group{4, 2}));
  ASSERT_EQ(plan->prediction.ranks.size(), 4u);
  for (const size_t place : {0, 2}) {
    EXPECT_THAT(plan->prediction.ranks[place].refused,
                AllOf(HasSubstr("expected a number that divides the"), HasSubstr("got 2")));
  }
  for (CandidateWorker& worker : request.workers) worker.devices = {0};
  EXPECT_EQ(std::string(Message(MakePlan(request).status())),
            "group.tensor is auto, and no number of ranks can share the stages: 1 rank: "
            "group.expert: expected a number that divides the 1 rank of a stage and the 6 experts "
            "of a block (model.experts), got 2; choose another number, or auto");
}

// A worker that does not know of parts.
TEST(Ranks, TimesWithoutPartsAreThoseOfOne) {
  PlanRequest request = OfExperts();
  for (CandidateWorker& worker : request.workers) {
    worker.times.clear_groups();
    TimeGroup(2, 0.006, 0.011, &worker);
  }
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.cells[0].group, (Group{2, 1}));
  EXPECT_THAT(plan->prediction.ranks[2].refused,
              HasSubstr("to have timed a stage of 2 ranks with experts in 2 parts, got"));
}

TEST(Ranks, ThatDoNotDivideTheTokensOfASliceCannotBe) {
  PlanRequest request = Auto(0.004);
  request.spec.group.sequence = true;
  request.spec.pipeline.slices = request.spec.model.context / 2;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.ranks[1].refused, "");
  EXPECT_THAT(plan->prediction.ranks[3].refused,
              HasSubstr("divides the 2 tokens of a slice, got 4"));
}

// What sharing the stage cost was not measured here.
TEST(Ranks, OfAReplayHaveItsTimesAndNoCollectives) {
  PlanRequest request = Groups(2, /*devices=*/2, /*ranks=*/2);
  request.spec.replay.emplace();
  request.spec.replay->source = "a machine";
  request.spec.replay->block_forward = absl::Milliseconds(6);
  request.spec.replay->block_backward = absl::Milliseconds(11);
  request.spec.replay->real_codecs = true;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (size_t s = 0; s < 2; ++s) {
    const Cell& cell = plan->assignment.cells[s];
    EXPECT_EQ(cell.group.tensor, 2u);
    EXPECT_NEAR(plan->cells[s].forward_seconds, 0.006 * cell.layers.count, 0.005);
    EXPECT_FALSE(plan->cells[s].group.has_value());
  }
  EXPECT_THAT(plan->explanation,
              HasSubstr("The times of the replay are those of all ranks together"));
}

TEST(Ranks, AutoIsOneRankWhereAWorkerHasOneDevice) {
  PlanRequest request = Auto(0.004);
  request.workers[1].devices = {0};
  request.spec.group.forward = GroupCollective::kZip;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->assignment.cells[0].group.tensor, 1u);
  EXPECT_FALSE(plan->cells[0].group.has_value());
  EXPECT_THAT(plan->explanation,
              HasSubstr("group.tensor is auto: 1 rank a stage is all that the workers' devices "
                        "allow."));
}

}  // namespace
}  // namespace longhaul::coordinator
