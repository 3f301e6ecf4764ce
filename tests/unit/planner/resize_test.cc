// Plans of runs that go on with another number of replicas.
#include "planner/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/replicas.h"
#include "run/plan/chain.h"
#include "tests/unit/planner/plan_request.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PlanRequest ResizeRequest(uint32_t replicas, uint32_t stages) {
  PlanRequest request = Request(replicas * stages);
  request.spec.replicas.count = replicas;
  request.spec.replicas.gradients.form = replicas::GradientForm::kSdp4bit;
  if (replicas == 1) request.spec = request.spec.WithReplicas(1);
  return request;
}

// As if it had been planned so, of the same workers with the same split.
TEST(ResizePlan, IsThePlanOfThatManyReplicas) {
  const PlanRequest two = ResizeRequest(2, 2);
  const auto plan = MakePlan(two);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const uint32_t replicas : {1U, 3U, 4U}) {
    const PlanRequest request = ResizeRequest(replicas, 2);
    const auto expected = MakePlan(request);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto resized = ResizePlan(*plan, two.spec.WithReplicas(replicas), request.workers);
    ASSERT_TRUE(resized.ok()) << resized.status();
    const Assignment& assignment = resized->assignment;
    EXPECT_TRUE(CheckAssignment(assignment).ok()) << CheckAssignment(assignment);
    EXPECT_EQ(assignment.run_yaml, expected->assignment.run_yaml);
    ASSERT_EQ(assignment.cells.size(), expected->assignment.cells.size());
    EXPECT_EQ(resized->cells.size(), assignment.cells.size());
    EXPECT_EQ(resized->prediction.cells.size(), assignment.cells.size());
    for (size_t i = 0; i < assignment.cells.size(); ++i) {
      const Cell &got = assignment.cells[i], &wanted = expected->assignment.cells[i];
      EXPECT_EQ(got.id, wanted.id);
      EXPECT_EQ(got.worker, wanted.worker);
      EXPECT_EQ(got.layers, wanted.layers);
      EXPECT_EQ(got.memory_bytes, wanted.memory_bytes) << replicas << ", " << ToString(got.id);
    }
    ASSERT_EQ(assignment.edges.size(), expected->assignment.edges.size());
    EXPECT_EQ(resized->edges.size(), assignment.edges.size());
    EXPECT_EQ(resized->prediction.edges.size(), assignment.edges.size());
    for (size_t i = 0; i < assignment.edges.size(); ++i) {
      const Edge &got = assignment.edges[i], &wanted = expected->assignment.edges[i];
      EXPECT_EQ(got.kind, wanted.kind);
      EXPECT_EQ(got.transport, wanted.transport);
      EXPECT_EQ(got.to_dials, wanted.to_dials);
      EXPECT_EQ(got.forward.bytes, wanted.forward.bytes);
      EXPECT_EQ(got.forward.codec, wanted.forward.codec);
      EXPECT_EQ(got.backward.bytes, wanted.backward.bytes);
    }
  }
}

TEST(ResizePlan, KeepsWhatIsKnownOfWorkersThatStay) {
  PlanRequest request = ResizeRequest(2, 2);
  request.workers[2].times.set_block_forward(0.02);
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<CandidateWorker> second = {request.workers[2], request.workers[3]};
  const auto resized = ResizePlan(*plan, request.spec.WithReplicas(1), second);
  ASSERT_TRUE(resized.ok()) << resized.status();
  EXPECT_EQ(resized->assignment.cells[0].worker, request.workers[2].id);
  EXPECT_EQ(resized->assignment.cells[0].id, (CellId{0, 0}));
  EXPECT_EQ(resized->cells[0].forward_seconds, plan->cells[2].forward_seconds);
  EXPECT_EQ(resized->prediction.exchange_seconds, 0);
  EXPECT_DOUBLE_EQ(resized->prediction.step_seconds,
                   plan->prediction.step_seconds - plan->prediction.exchange_seconds);
  EXPECT_THAT(resized->explanation, HasSubstr("1 replica of 2 stages"));
  EXPECT_THAT(resized->assignment.run_yaml, Not(HasSubstr("sdp4bit")));
}

}  // namespace
}  // namespace longhaul::coordinator
