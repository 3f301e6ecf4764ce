#include "deploy/sweep/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "deploy/sweep/prediction.h"
#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;

SweepPoint Point() {
  SweepPoint point;
  point.id = "10mbit/25ms/default/link-aware/r1";
  point.rate_bits_per_second = 10'000'000;
  point.delay = absl::Milliseconds(25);
  point.links = {"fp32", {"none", "none"}};
  point.spec.model.context = 100;
  point.spec.model.hidden = 64;
  point.spec.train.microbatches = 4;
  point.spec.train.steps = 6;
  point.spec.pipeline.stages = 2;
  point.spec.links.codecs = point.links.codecs;
  return point;
}

SweepSpec MeasuredSpec() {
  SweepSpec spec;
  spec.warm_up = 2;
  spec.jitter = absl::Milliseconds(2);
  return spec;
}

Plan TwoStages() {
  Plan plan;
  for (uint32_t stage = 0; stage < 2; ++stage) {
    plan.assignment.cells.push_back({.id = {.stage = stage},
                                     .worker_name = "worker" + std::to_string(stage + 1),
                                     .layers = {stage, 1},
                                     .setting = {.depth = 4}});
    plan.cells.push_back({.forward_seconds = 0.001, .backward_seconds = 0.002});
  }
  plan.assignment.edges = chain::MakeEdges(1, 2);
  plan.assignment.edges[0].forward.bytes = plan.assignment.edges[0].backward.bytes = 25'000;
  plan.edges.resize(1);
  plan.explanation = "because";
  plan.prediction.step_seconds = 0.015;
  plan.prediction.lower_bound_seconds = 0.014;
  return plan;
}

v1::RunStatus DoneRun() {
  v1::RunStatus run;
  run.set_run_id("tiny-p1-abc");
  run.set_started_unix_ms(1000);
  run.set_ended_unix_ms(9000);
  *run.mutable_plan() = ToProto(TwoStages());
  return run;
}

std::vector<v1::StepRecord> Steps(const std::vector<double>& seconds) {
  std::vector<v1::StepRecord> steps;
  for (const double one : seconds) {
    v1::StepRecord& step = steps.emplace_back();
    step.set_step(steps.size());
    step.set_seconds(one);
    step.set_loss(5.0 / static_cast<double>(steps.size()));
    step.set_link_bytes(100 * steps.size());
    step.set_payload_bytes(90 * steps.size());
  }
  return steps;
}

// It has a place in the curve, and took no step.
TEST(MeasuredPoint, TheValidationBeforeTheFirstStepIsNoStep) {
  std::vector<v1::StepRecord> steps = Steps({0.3, 0.1, 0.2});
  v1::StepRecord before;
  before.set_has_validation(true);
  before.set_validation_loss(4.5);
  before.set_clean_validation_loss(4.25);
  steps.insert(steps.begin(), before);
  SweepSpec sweep = MeasuredSpec();
  sweep.warm_up = 0;
  const auto result = MeasuredPoint(Point(), sweep, DoneRun(), steps, StageShares(0), {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->steps, 3u);
  EXPECT_DOUBLE_EQ(result->step_seconds, 0.2);
  ASSERT_EQ(result->curve.size(), 4u);
  EXPECT_EQ(result->curve[0].loss, std::nullopt);
  EXPECT_EQ(result->curve[0].validation_loss, 4.5);
  EXPECT_EQ(result->curve[0].clean_validation_loss, 4.25);
}

TEST(MeasuredPoint, TakesTheMedianAfterWarmUp) {
  std::vector<v1::StepRecord> steps = Steps({9, 8, 0.3, 0.1, 0.2, 7});
  steps[3].set_has_validation(true);
  steps[3].set_validation_loss(4.5);
  const auto result = MeasuredPoint(Point(), MeasuredSpec(), DoneRun(), steps, StageShares(2), {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->state, PointState::kMeasured);
  EXPECT_DOUBLE_EQ(result->step_seconds, 0.25);
  EXPECT_LT(result->step_seconds_low, 0.2);
  EXPECT_GT(result->step_seconds_high, 0.3);
  EXPECT_EQ(result->tokens_per_step, 400u);
  EXPECT_DOUBLE_EQ(result->TokensPerSecond(), 1600);
  EXPECT_DOUBLE_EQ(result->link_bytes_per_step, 450);
  EXPECT_DOUBLE_EQ(result->payload_bytes_per_step, 405);
  EXPECT_DOUBLE_EQ(result->delay_seconds, 0.025);
  EXPECT_DOUBLE_EQ(result->jitter_seconds, 0.002);
  EXPECT_EQ(result->steps, 6u);
  ASSERT_EQ(result->curve.size(), 6u);
  EXPECT_EQ(result->curve[1].loss, 2.5);
  EXPECT_EQ(result->curve[3].validation_loss, 4.5);
  EXPECT_EQ(result->curve[2].validation_loss, std::nullopt);
  EXPECT_EQ(result->explanation, "because");
  EXPECT_EQ(result->plan_simulated_seconds, 0.015);
}

TEST(MeasuredPoint, PredictsWithTheLinksOfThePoint) {
  const auto result =
      MeasuredPoint(Point(), MeasuredSpec(), DoneRun(), Steps({1, 1, 1, 1}), StageShares(2), {});
  ASSERT_TRUE(result.ok()) << result.status();
  // Four activations of 21 ms each, two delays of 25 ms, the last gradient.
  EXPECT_GT(result->bound_seconds, 4 * 0.021 + 2 * 0.025);
  EXPECT_GE(result->simulated_seconds, result->bound_seconds);
  EXPECT_LT(result->simulated_seconds, 0.3);
  EXPECT_THAT(result->bottleneck, HasSubstr("of stage"));
}

TEST(MeasuredPoint, TooFewStepsAreAnError) {
  const auto result =
      MeasuredPoint(Point(), MeasuredSpec(), DoneRun(), Steps({1, 1}), StageShares(2), {});
  EXPECT_THAT(std::string(Message(result.status())), HasSubstr("none after its 2 of warm-up"));
}

TEST(MeasuredPoint, AReplayHasNoLosses) {
  v1::RunStatus run = DoneRun();
  run.set_replay_source("one GPU");
  const auto result =
      MeasuredPoint(Point(), MeasuredSpec(), run, Steps({1, 1, 1}), StageShares(2), {});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->replayed);
  EXPECT_EQ(result->replay_source, "one GPU");
  EXPECT_EQ(result->curve[2].loss, std::nullopt);
}

TEST(MeasuredPoint, ALossThatIsNotFiniteIsNone) {
  std::vector<v1::StepRecord> steps = Steps({1, 1, 1});
  steps[1].set_loss(std::numeric_limits<double>::quiet_NaN());
  const auto result = MeasuredPoint(Point(), MeasuredSpec(), DoneRun(), steps, StageShares(2), {});
  EXPECT_EQ(result->curve[1].loss, std::nullopt);
}

TEST(StageShares, AveragesStepsAfterWarmUpOnce) {
  StageShares shares(2);
  const auto look = [&](uint64_t step, double compute) {
    v1::RunStatus run;
    v1::StageStatus& stage = *run.add_stages();
    stage.set_stage(1);
    stage.set_step(step);
    stage.set_compute_share(compute);
    stage.set_codec_wait_share(compute / 10);
    shares.Add(run);
  };
  look(1, 0.9);
  look(2, 0.9);
  look(3, 0.2);
  look(3, 0.2);  // seen before
  look(5, 0.4);
  const std::vector<StageResult> means = shares.Means(TwoStages().assignment);
  ASSERT_EQ(means.size(), 2u);
  EXPECT_EQ(means[0].compute_share, 0);
  EXPECT_EQ(means[0].worker, "worker1");
  EXPECT_DOUBLE_EQ(means[1].compute_share, 0.3);
  EXPECT_DOUBLE_EQ(means[1].codec_wait_share, 0.03);
  EXPECT_EQ(means[1].depth, 4u);
}

TEST(BytesBetween, SubtractsAndKnowsWhatDoesNotCount) {
  ClusterView before, after;
  for (ClusterView* view : {&before, &after}) {
    view->state.workers.resize(2);
    view->state.workers[0].name = "worker1";
    view->workers.resize(2);
  }
  before.workers[0].uplink = LinkCounters{.bytes = 100, .acknowledgement_bytes = 10};
  after.workers[0].uplink =
      LinkCounters{.bytes = 350, .dropped_packets = 2, .acknowledgement_bytes = 30};
  before.workers[0].downlink = LinkCounters{.bytes = 100};
  after.workers[0].downlink = LinkCounters{.bytes = 50};  // counters began anew
  const std::vector<LinkBytes> bytes = BytesBetween(before, after);
  ASSERT_EQ(bytes.size(), 2u);
  EXPECT_EQ(bytes[0].worker, "worker1");
  EXPECT_EQ(bytes[0].up, 250u);
  EXPECT_EQ(bytes[0].up_acknowledgements, 20u);
  EXPECT_EQ(bytes[0].dropped_packets, 2u);
  EXPECT_EQ(bytes[0].down, std::nullopt);
  EXPECT_EQ(bytes[1].up, std::nullopt);
}

TEST(Unmeasured, IsWaitingOrSaysWhyNot) {
  SweepPoint point = Point();
  EXPECT_EQ(Unmeasured(point, MeasuredSpec()).state, PointState::kWaiting);
  point.impossible = "no such thing";
  EXPECT_EQ(Unmeasured(point, MeasuredSpec()).state, PointState::kImpossible);
  EXPECT_EQ(Unmeasured(point, MeasuredSpec()).reason, "no such thing");
  const PointResult failed = FailedPoint(Point(), MeasuredSpec(), "it died", "run-1");
  EXPECT_EQ(failed.state, PointState::kRunFailed);
  EXPECT_EQ(failed.run_id, "run-1");
}

// What replicas send each other follows from their parameters, behind the passes: less than 500 KB
// each way, and four latencies.
TEST(MeasuredPoint, AStepOfReplicasIsPredictedWithTheirExchange) {
  const Plan alone = TwoStages();
  Plan plan = alone;
  for (uint32_t stage = 0; stage < 2; ++stage) {
    Cell cell = alone.assignment.cells[stage];
    cell.id.replica = 1;
    cell.worker_name = "worker" + std::to_string(stage + 3);
    plan.assignment.cells.push_back(cell);
    plan.cells.push_back(alone.cells[stage]);
  }
  plan.assignment.edges = chain::MakeEdges(2, 2);
  for (Edge& edge : plan.assignment.edges) {
    edge.forward.bytes = edge.backward.bytes = 25'000;
  }
  plan.edges.resize(plan.assignment.edges.size());
  SweepPoint point = Point();
  const auto one = PredictPoint(alone, point.spec, 10'000'000, absl::Milliseconds(25));
  point.spec.replicas.count = 2;
  v1::RunStatus run = DoneRun();
  *run.mutable_plan() = ToProto(plan);
  StageShares shares(0);
  for (const uint32_t replica : {0u, 1u}) {
    v1::StageStatus& stage = *run.add_stages();
    stage.set_replica(replica);
    stage.set_step(1);
    stage.set_compute_share(0.25 * (replica + 1));
  }
  shares.Add(run);
  const auto result = MeasuredPoint(point, MeasuredSpec(), run, Steps({1, 1, 1}), shares, {});
  ASSERT_TRUE(one.ok() && result.ok()) << result.status();
  const double exchange = result->simulated_seconds - one->simulated_seconds;
  EXPECT_GT(exchange, 4 * 0.025 + 0.1);
  EXPECT_LT(exchange, 4 * 0.025 + 500'000 / (10e6 / 8 * 0.956));
  EXPECT_GT(result->bound_seconds, one->bound_seconds + 0.8 * exchange);
  EXPECT_LE(result->bound_seconds, result->simulated_seconds);
  EXPECT_GT(result->floor_seconds, one->floor_seconds + 0.8 * (exchange - 0.1));
  EXPECT_EQ(result->tokens_per_step, 800u);
  ASSERT_EQ(result->stages.size(), 4u);
  EXPECT_EQ(result->stages[2].id, (CellId{1, 0}));
  EXPECT_DOUBLE_EQ(result->stages[0].compute_share, 0.25);
  EXPECT_DOUBLE_EQ(result->stages[2].compute_share, 0.5);
  EXPECT_EQ(ResultsFromJson(ToJson({.points = {*result}}))->points[0], *result);
}

TEST(NetworkSeconds, IsWhatTheBusiestInterfaceNeeds) {
  RunSpec spec = Point().spec;
  const double two = NetworkSeconds(spec, 10'000'000);
  EXPECT_NEAR(two, 4 * 25'600 / (10e6 / 8 * 0.956), 0.002);
  spec.pipeline.stages = 4;
  EXPECT_NEAR(NetworkSeconds(spec, 10'000'000), 2 * two, 1e-9);
  EXPECT_EQ(NetworkSeconds(spec, 0), 0);
  spec.pipeline.stages = 1;
  EXPECT_EQ(NetworkSeconds(spec, 10'000'000), 0);
}

}  // namespace
}  // namespace longhaul::cli
