// A neighbour in order, out of order, with nonsense, with a norm that is not finite, and gone.
#include "worker/pipeline/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/pipeline/executor_harness.h"
#include "tests/unit/worker/pipeline/failing_stage.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

// A link's end that only listens.
class Listener : public transport::LinkHandler {
 public:
  void OnFrame(transport::Lane, std::span<const std::byte>) override {}
  void OnClosed(const Status&) override {}
};

TEST_F(ExecutorTest, TheFirstStageDecidesAndTheLastStepIsCheckpointed) {
  Begin(0);
  for (uint64_t step = 1; step <= 3; ++step) {
    PeerIsTheLastStage(step);
    const auto control = PeerHears<StepControlArrived>();
    EXPECT_EQ(control.step, Step(step));
    EXPECT_GT(control.message.squared_norm, 1);  // its own gradients' came on top
    EXPECT_FALSE(control.message.stop || control.message.nonfinite);
  }
  EXPECT_EQ(Result(), absl::OkStatus());
  EXPECT_EQ(shards_.steps.Take(), 3u);
  const auto reports = Reports();
  ASSERT_EQ(reports.size(), 5u);  // three steps, the shard, the end
  EXPECT_TRUE(reports[0].step().has_norm());
  EXPECT_EQ(reports[3].shard().step(), 3u);
  EXPECT_EQ(reports[4].finished().step(), 3u);
  EXPECT_FALSE(reports[4].finished().stopped());
}

TEST_F(ExecutorTest, ARunThatIsOnlyMeasuredEndsWithoutACheckpoint) {
  Begin(0, {"checkpoint.at_end=false"});
  for (uint64_t step = 1; step <= 3; ++step) {
    PeerIsTheLastStage(step);
    PeerHears<StepControlArrived>();
  }
  EXPECT_EQ(Result(), absl::OkStatus());
  for (const v1::WorkerMessage& report : Reports()) EXPECT_FALSE(report.has_shard());
}

TEST_F(ExecutorTest, AStopEndsTheRunWithACheckpointOnBothSides) {
  Begin(0);
  executor_->RequestStop();
  PeerIsTheLastStage(1);
  EXPECT_TRUE(PeerHears<StepControlArrived>().message.stop);
  EXPECT_EQ(Result(), absl::OkStatus());
  EXPECT_EQ(shards_.steps.Take(), 1u);
  const auto reports = Reports();
  EXPECT_EQ(reports.back().finished().step(), 1u);
  EXPECT_TRUE(reports.back().finished().stopped());
}

TEST_F(ExecutorTest, TheLastStageStopsWhenTheFirstSaysSo) {
  Begin(1);
  const double norm = PeerIsTheFirstStage(1);
  EXPECT_GT(norm, 0);
  PeerDecides(1, {.squared_norm = norm, .stop = true});
  EXPECT_EQ(Result(), absl::OkStatus());
  EXPECT_EQ(shards_.steps.Take(), 1u);
  const auto reports = Reports();
  EXPECT_TRUE(reports.front().step().has_loss());
  EXPECT_TRUE(reports.back().finished().stopped());
}

TEST_F(ExecutorTest, AnotherDepthHoldsFromTheNextStepOn) {
  Begin(0);
  for (uint32_t i = 0; i < 2; ++i) EXPECT_EQ(PeerHears<TensorArrived>().slice, Microbatch(i));
  executor_->RequestRetune({.id = 7, .depth = 1});  // heard in step 1
  for (uint32_t i = 0; i < 2; ++i) PeerSends(1, i);
  peer_->SendStepMessage(wire::TensorKind::kNormUp, Step(1), {.squared_norm = 1});
  PeerIsTheLastStage(2);
  executor_->RequestRetune({.id = 7, .depth = 1});
  PeerIsTheLastStage(3);
  EXPECT_EQ(Result(), absl::OkStatus());
  std::vector<uint32_t> in_flight;
  std::vector<uint64_t> since;
  for (const v1::WorkerMessage& report : Reports()) {
    if (report.has_step()) in_flight.push_back(report.step().peak_in_flight());
    if (!report.has_retuned()) continue;
    EXPECT_EQ(report.retuned().retune(), 7u);
    since.push_back(report.retuned().step());
  }
  EXPECT_EQ(in_flight, (std::vector<uint32_t>{2, 1, 1}));
  EXPECT_EQ(since, (std::vector<uint64_t>{2, 2})) << "who asks again was not heard";
}

// What stages wait for a step's word, and take for it, gives round trips.
TEST_F(ExecutorTest, TheWayOfTheNormIsTimed) {
  constexpr absl::Duration kAway = absl::Milliseconds(20);
  Begin(1);
  const double norm = PeerIsTheFirstStage(1);
  absl::SleepFor(kAway);  // the neighbour is that far away
  PeerDecides(1, {.squared_norm = norm, .stop = true});
  EXPECT_EQ(Result(), absl::OkStatus());
  const v1::StepReport step = Reports().front().step();
  EXPECT_GE(step.norm_wait_seconds(), absl::ToDoubleSeconds(kAway));
  EXPECT_LT(step.norm_wait_seconds(), step.seconds());
  EXPECT_LT(step.norm_turn_seconds(), step.seconds() - step.norm_wait_seconds());
}

TEST_F(ExecutorTest, AStageReportsItsOwnPartOfTheNormAndItsNumerics) {
  Begin(1);
  const double norm = PeerIsTheFirstStage(1);  // nobody is below
  PeerDecides(1, {.squared_norm = 9, .stop = true});
  EXPECT_EQ(Result(), absl::OkStatus());
  const v1::StepReport step = Reports().front().step();
  EXPECT_GT(norm, 0);
  EXPECT_EQ(step.squared_norm(), norm);
  EXPECT_EQ(step.numerics(), kNumerics);
}

TEST_F(ExecutorTest, AnAbortEndsTheWaitForAStep) {
  Begin(1);
  executor_->Abort(absl::CancelledError("the coordinator says so"));
  EXPECT_EQ(Result(), absl::CancelledError("the coordinator says so"));
  ExpectNoUpdate();
}

TEST_F(ExecutorTest, AnAbortEndsAStepInTheMiddle) {
  Begin(0);
  PeerHears<TensorArrived>();
  PeerSends(1, 0);  // one of two gradients
  executor_->Abort(absl::CancelledError("the coordinator says so"));
  EXPECT_EQ(Result(), absl::CancelledError("the coordinator says so"));
  for (const v1::WorkerMessage& report : Reports()) EXPECT_FALSE(report.has_finished());
  EXPECT_TRUE(shards_.steps.empty());
  ExpectNoUpdate();
}

// One step, and then a validation of many microbatches.
const std::vector<std::string> kValidates = {"train.steps=1", "validation.every=1",
                                             "validation.samples=10", "validation.share=0.5",
                                             "train.microbatch_size=1"};
const Pass kValidation{Step(1), PassKind::kValidation};

TEST_F(ExecutorTest, AValidationGoesNoFurtherAheadThanTheStageBelowTakes) {
  Begin(0, kValidates);
  PeerIsTheLastStage(1);
  PeerHears<StepControlArrived>();
  uint32_t came = 0;
  for (; came < schedule::kLeastOutputs; ++came) {
    const TensorArrived arrived = PeerHears<TensorArrived>();
    EXPECT_EQ(arrived.pass, kValidation);
    EXPECT_EQ(arrived.slice, Microbatch(came));
  }
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_TRUE(peer_events_->TakeAll().empty());
  for (uint32_t taken = 0; came < 10; ++came, ++taken) {
    peer_->SendTaken(kValidation, Microbatch(taken));
    EXPECT_EQ(PeerHears<TensorArrived>().slice, Microbatch(came));
  }
  EXPECT_TRUE(Result().ok()) << Result();
}

TEST_F(ExecutorTest, OfAValidationOnlyTheNextActivationCanBeTaken) {
  Begin(0, kValidates);
  PeerIsTheLastStage(1);
  PeerHears<StepControlArrived>();
  for (uint32_t i = 0; i < schedule::kLeastOutputs; ++i) PeerHears<TensorArrived>();
  peer_->SendTaken(kValidation, Microbatch(1));
  EXPECT_THAT(std::string(Message(Result())), HasSubstr("which is not the one that follows"));
}

TEST_F(ExecutorTest, TheLastStageSaysWhichActivationsOfAValidationItTook) {
  Begin(1, kValidates);
  PeerIsTheFirstStage(1);
  PeerDecides(1, {.squared_norm = 1});
  for (uint32_t i = 0; i < 10; ++i) {
    PeerSends(kValidation, i);
    const ActivationTaken taken = PeerHears<ActivationTaken>();
    EXPECT_EQ(taken.pass, kValidation);
    EXPECT_EQ(taken.slice, Microbatch(i));
  }
  EXPECT_TRUE(Result().ok()) << Result();
}

TEST_F(ExecutorTest, AStageAboveTakesNothing) {
  Begin(1, kValidates);
  peer_->SendTaken(kValidation, Microbatch(0));
  EXPECT_THAT(std::string(Message(Result())), HasSubstr("expected from downstream a word"));
}

TEST_F(ExecutorTest, ANormThatIsNotFiniteUpdatesNothing) {
  Begin(0);
  PeerIsTheLastStage(1, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(PeerHears<StepControlArrived>().message.nonfinite);
  const Status status = Result();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("norm of step 1 is not finite"));
  ExpectNoUpdate();
  EXPECT_TRUE(shards_.steps.empty());
  // People see which step it was.
  const auto reports = Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(std::isnan(reports[0].step().gradient_norm()));
}

TEST_F(ExecutorTest, TheLastStageUpdatesNothingEither) {
  Begin(1);
  PeerIsTheFirstStage(1);
  PeerDecides(1, {.squared_norm = INFINITY, .nonfinite = true});
  EXPECT_EQ(Result().code(), absl::StatusCode::kInternal);
  ExpectNoUpdate();
}

TEST_F(ExecutorTest, GradientsThatCannotBeSummedEndTheStage) {
  spec_ = TinySpec();
  auto failing = std::make_unique<FailingStage>(BoundaryShape());
  failing->norm = absl::InternalError("gradient norm: the device is gone");
  Take(std::move(failing));
  Begin(1);
  for (uint32_t i = 0; i < spec_.train.microbatches; ++i) PeerSends(1, i);
  EXPECT_EQ(Result(), absl::InternalError("gradient norm: the device is gone"));
}

TEST_F(ExecutorTest, ASnapshotThatCannotBeTakenEndsTheStage) {
  spec_ = TinySpec();
  Take(std::make_unique<FailingStage>(BoundaryShape()));
  Begin(1);
  PeerDecides(1, {.squared_norm = PeerIsTheFirstStage(1), .stop = true});
  EXPECT_EQ(Result(), absl::ResourceExhaustedError("snapshot: no memory"));
  EXPECT_TRUE(shards_.steps.empty());
}

TEST_F(ExecutorTest, TheNormOfAnotherStepIsRefused) {
  Begin(0);
  for (uint32_t i = 0; i < 2; ++i) {
    PeerHears<TensorArrived>();
    PeerSends(1, i);
  }
  peer_->SendStepMessage(wire::TensorKind::kNormUp, Step(2), {.squared_norm = 1});
  EXPECT_EQ(Result(), absl::InternalError("expected the norm of step 1, got that of step 2"));
  ExpectNoUpdate();
}

TEST_F(ExecutorTest, TheDecisionOfAnotherStepIsRefused) {
  Begin(1);
  PeerIsTheFirstStage(1);
  PeerDecides(7, {.squared_norm = 1});
  EXPECT_EQ(Result(), absl::InternalError("expected control of step 1, got that of step 7"));
  ExpectNoUpdate();
}

TEST_F(ExecutorTest, GradientsThatWaitForActivationsLeaveInEveryStep) {
  activation_lead_ = 2;
  Begin(1, {"train.steps=3"});
  for (uint64_t step = 1; step <= 3; ++step) {
    // Gradients that were kept for ever would keep this from ending.
    PeerDecides(step, {.squared_norm = PeerIsTheFirstStage(step)});
  }
  EXPECT_EQ(Result(), absl::OkStatus());
}

TEST_F(ExecutorTest, GradientsOfAnotherStepAreRefused) {
  Begin(0);
  PeerHears<TensorArrived>();
  PeerSends(2, 0);
  EXPECT_FALSE(Result().ok());
  EXPECT_FALSE(absl::IsCancelled(Result()));
  ExpectNoUpdate();
}

TEST_F(ExecutorTest, BytesThatAreNoFrameAreRefused) {
  Begin(0, {}, std::make_shared<Listener>());
  std::vector<std::byte> nonsense(100, std::byte{0x5a});
  testing::Mailbox<Status> sent;
  peer_link_->Send(transport::Lane::kControl, {nonsense, {}},
                   [&sent](const Status& status) { sent.Push(status); });
  EXPECT_TRUE(sent.Take().has_value());
  const Status status = Result();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_FALSE(executor_->lost_edge().has_value());
  ExpectNoUpdate();
}

TEST_F(ExecutorTest, ANeighbourThatIsGoneIsNamed) {
  Begin(0);
  PeerHears<TensorArrived>();
  events_->Push(PeerGone{kKey.edge, {.stage = 1}, absl::UnavailableError("silent for 10s")});
  const Status status = Result();
  EXPECT_EQ(status, absl::UnavailableError("lost the link to stage 1: silent for 10s"));
  EXPECT_EQ(executor_->lost_edge(), kKey.edge);
}

TEST_F(ExecutorTest, ACheckpointThatCannotBeWrittenEndsTheRun) {
  shards_.refusal = absl::ResourceExhaustedError("the disk is full");
  Begin(0, {"train.steps=1"});
  PeerIsTheLastStage(1);
  PeerHears<StepControlArrived>();
  EXPECT_EQ(Result(), absl::ResourceExhaustedError("checkpoint of step 1: the disk is full"));
  for (const v1::WorkerMessage& report : Reports()) EXPECT_FALSE(report.has_finished());
}

// The next one may find room.
TEST_F(ExecutorTest, ACheckpointThatAnotherFollowsIsSkippedWhereItCannotBeWritten) {
  shards_.refusal = absl::ResourceExhaustedError("the disk is full");
  Begin(0, {"checkpoint.every=1", "checkpoint.at_end=false", "train.steps=3"});
  for (uint64_t step = 1; step <= 3; ++step) {
    PeerIsTheLastStage(step);
    PeerHears<StepControlArrived>();
  }
  // What would be resumed from is missing only at the end.
  EXPECT_EQ(Result(), absl::ResourceExhaustedError("checkpoint of step 3: the disk is full"));
  std::vector<uint64_t> skipped;
  for (const v1::WorkerMessage& report : Reports()) {
    if (!report.has_shard()) continue;
    EXPECT_EQ(report.shard().problem(), "the disk is full");
    EXPECT_TRUE(report.shard().files().empty());
    skipped.push_back(report.shard().step());
  }
  EXPECT_EQ(skipped, (std::vector<uint64_t>{1, 2}));
}

}  // namespace
}  // namespace longhaul::worker
