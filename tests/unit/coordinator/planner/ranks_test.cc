// The number of ranks of a stage, where the plan chooses.
#include "coordinator/planner/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/planner/memory.h"
#include "tests/unit/coordinator/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Of workers with four devices: 2 ranks are faster than one, 3 cannot be, 4 take `four` a block.
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
    const auto spec = ParseRunSpec(plan->assignment.run_yaml, "run.yaml", {}, nullptr);
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
  two.group = request.spec.group.Settled(2);
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
