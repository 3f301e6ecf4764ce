// What a stage in memory may be used for: by the content of a checkpoint's files, not by its step.
#include "worker/pipeline/resident_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace longhaul::worker {
namespace {

using Source = ResidentStage::Source;

StageOptions OptionsOf(uint32_t first_layer = 0, uint32_t layers = 2) {
  StageOptions options;
  options.model = {.layers = 2, .hidden = 16, .heads = 2, .context = 8};
  options.train.steps = 10;
  options.train.microbatches = 2;
  options.first_layer = first_layer;
  options.layers = layers;
  options.first = first_layer == 0;
  options.last = first_layer + layers == 2;
  return options;
}

ResidentIdentity IdentityOf(const StageOptions& options) {
  return {.run = RunId("run"), .group = {}, .options = options};
}

std::unique_ptr<ResidentStage> NewResident(const StageOptions& options = OptionsOf()) {
  auto resident = ResidentStage::Create(IdentityOf(options));
  EXPECT_TRUE(resident.ok()) << resident.status();
  return *std::move(resident);
}

Stage::Input Tokens() {
  static const std::vector<int32_t> ids = [] {
    std::vector<int32_t> numbers(9);
    std::iota(numbers.begin(), numbers.end(), 40);
    return numbers;
  }();
  return {.tokens = std::span(ids).first(8), .activation = {}, .targets = std::span(ids).last(8)};
}

void ForwardAndBackward(Stage& model, uint32_t microbatch) {
  ASSERT_TRUE(model.Forward(Microbatch(microbatch), Tokens()).ok());
  ASSERT_TRUE(model.Backward(Microbatch(microbatch), {}).ok());
}

void TrainStep(ResidentStage& resident) {
  Stage& model = resident.model();
  for (uint32_t m = 0; m < 2; ++m) ForwardAndBackward(model, m);
  ASSERT_TRUE(model.OptimizerStep(Step(model.steps() + 1), 1e-2, 1).ok());
}

// As the executor does it, with files of this content.
void Checkpoint(ResidentStage& resident, const std::string& content) {
  StatusOr<SharedSnapshot> snapshot = resident.TakeSnapshot();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  resident.Keep(*std::move(snapshot), {{"params", 1, content + "-params"}, {"optim", 1, content}});
}
ParametersOrigin OriginOf(uint64_t step, const std::string& content) {
  return {step, {content, content + "-params"}};
}

SharedSnapshot SnapshotOf(ResidentStage& resident) {
  return std::make_shared<const StageSnapshot>(resident.model().Snapshot().value());
}

void ExpectSame(const StageSnapshot& one, const StageSnapshot& other) {
  EXPECT_EQ(one.step, other.step);
  const auto same = [](const std::vector<NamedArray>& left, const std::vector<NamedArray>& right) {
    ASSERT_EQ(left.size(), right.size());
    for (size_t i = 0; i < left.size(); ++i) EXPECT_EQ(left[i].values, right[i].values);
  };
  same(one.parameters, other.parameters);
  same(one.moments, other.moments);
}

TEST(ResidentStage, AnUntrainedOneIsForTheBeginningOnly) {
  const auto resident = NewResident();
  EXPECT_EQ(resident->SourceOf({}), Source::kParameters);
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "a")), Source::kFiles);
  TrainStep(*resident);
  EXPECT_EQ(resident->SourceOf({}), Source::kFiles);
}

TEST(ResidentStage, KnowsTheCheckpointThatItHasWritten) {
  const auto resident = NewResident();
  TrainStep(*resident);
  Checkpoint(*resident, "a");
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "a")), Source::kParameters);
  TrainStep(*resident);
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "a")), Source::kSnapshot);
  EXPECT_EQ(resident->SourceOf(OriginOf(2, "a")), Source::kFiles) << "of a step without one";
}

// A run that went on from an older checkpoint elsewhere has written the same step once more.
TEST(ResidentStage, TheSameStepOfAnotherHistoryIsAnotherCheckpoint) {
  const auto resident = NewResident();
  TrainStep(*resident);
  Checkpoint(*resident, "a");
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "b")), Source::kFiles);
  EXPECT_EQ(resident->SourceOf({1, {"a"}}), Source::kFiles) << "some of the files are others";
  EXPECT_EQ(resident->BeginFrom(OriginOf(1, "b"), nullptr).code(), absl::StatusCode::kInternal);
}

TEST(ResidentStage, ACheckpointThatWasNotWrittenProvesNothing) {
  const auto resident = NewResident();
  TrainStep(*resident);
  Checkpoint(*resident, "a");
  TrainStep(*resident);
  const StatusOr<SharedSnapshot> snapshot = resident->TakeSnapshot();  // and the disk is full
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(resident->SourceOf(OriginOf(2, "b")), Source::kFiles);
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "a")), Source::kFiles) << "given up for the new one";
}

TEST(ResidentStage, TheSnapshotGivesTheSameBitsAsTheFiles) {
  const auto resident = NewResident();
  TrainStep(*resident);
  Checkpoint(*resident, "a");
  const SharedSnapshot files = SnapshotOf(*resident);
  TrainStep(*resident);
  ASSERT_TRUE(resident->BeginFrom(OriginOf(1, "a"), nullptr).ok());
  ExpectSame(*SnapshotOf(*resident), *files);
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "a")), Source::kParameters);

  const auto elsewhere = NewResident();
  ASSERT_TRUE(elsewhere->BeginFrom(OriginOf(1, "a"), files).ok());
  for (int step = 0; step < 3; ++step) {
    TrainStep(*resident);
    TrainStep(*elsewhere);
  }
  ExpectSame(*SnapshotOf(*resident), *SnapshotOf(*elsewhere));
}

TEST(ResidentStage, WhatWasReadIsKeptForTheNextTime) {
  const auto writer = NewResident();
  TrainStep(*writer);
  const auto resident = NewResident();
  ASSERT_TRUE(resident->BeginFrom(OriginOf(1, "a"), SnapshotOf(*writer)).ok());
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "a")), Source::kParameters);
  TrainStep(*resident);
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "a")), Source::kSnapshot);
}

// The files of another split hold layers of others too.
TEST(ResidentStage, OfFilesWithMoreThanItsLayersOnlyTheParametersStay) {
  const auto whole = NewResident();
  TrainStep(*whole);
  const auto resident = NewResident(OptionsOf(0, 1));
  const uint64_t bytes = resident->memory_bytes();
  ASSERT_TRUE(resident->BeginFrom(OriginOf(1, "a"), SnapshotOf(*whole)).ok());
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "a")), Source::kParameters);
  EXPECT_EQ(resident->memory_bytes(), bytes);
}

TEST(ResidentStage, AnAbortedStepLeavesNothingBehind) {
  const auto resident = NewResident(), whole = NewResident();
  for (ResidentStage* one : {resident.get(), whole.get()}) {
    TrainStep(*one);
    Checkpoint(*one, "a");
  }
  // One microbatch is through and its gradients are there, another has gone forward only.
  ForwardAndBackward(resident->model(), 0);
  ASSERT_TRUE(resident->model().Forward(Microbatch(1), Tokens()).ok());
  ASSERT_TRUE(resident->EndEpoch(absl::CancelledError("an abort")).ok());
  EXPECT_EQ(resident->model().AddSquaredGradientNorm(0).value().sum, 0);
  EXPECT_EQ(resident->SourceOf(OriginOf(1, "a")), Source::kParameters);
  TrainStep(*resident);
  TrainStep(*whole);
  ExpectSame(*SnapshotOf(*resident), *SnapshotOf(*whole));
}

std::unique_ptr<ResidentStage> NewOverlapping() {
  ResidentIdentity identity = IdentityOf(OptionsOf());
  identity.overlaps_steps = true;
  auto resident = ResidentStage::Create(identity);
  EXPECT_TRUE(resident.ok()) << resident.status();
  return *std::move(resident);
}

// As the executor does it: when a step's update comes the next one's passes are under way.
void TrainOverlapping(ResidentStage& resident, uint64_t first, uint64_t last) {
  for (uint64_t step = first; step <= last; ++step) {
    if (step == first) {
      for (uint32_t m = 0; m < 2; ++m) ForwardAndBackward(resident.ModelFor(Step(step)), m);
    }
    if (step < last) ForwardAndBackward(resident.ModelFor(Step(step + 1)), 0);
    ASSERT_TRUE(resident.TakeTurn(Step(step)).ok());
    Stage& model = resident.ModelFor(Step(step));
    ASSERT_TRUE(model.OptimizerStep(Step(step), 1e-2, 1).ok());
    EXPECT_EQ(&resident.model(), &model);
    EXPECT_EQ(model.steps(), step);
    if (step < last) ForwardAndBackward(resident.ModelFor(Step(step + 1)), 1);
  }
}

std::vector<float> ValuesOf(Stage& stage) {
  return stage.Snapshot().value().parameters.front().values;
}

TEST(ResidentStage, StepsThatOverlapComputeWithAnUpdateLess) {
  const auto resident = NewOverlapping();
  ASSERT_TRUE(resident->BeginFrom({}, nullptr).ok());
  std::vector<std::vector<float>> after = {ValuesOf(resident->model())};
  EXPECT_EQ(ValuesOf(resident->ModelFor(Step(1))), after[0]);
  for (uint64_t step = 1; step <= 4; ++step) {
    TrainOverlapping(*resident, step, step);
    after.push_back(ValuesOf(resident->model()));
    EXPECT_NE(after[step], after[step - 1]);
    EXPECT_EQ(ValuesOf(resident->ModelFor(Step(step + 1))), after[step - 1]) << "step " << step;
  }
}

// From memory, from the last snapshot, and from files: after each of them all is as if the steps
// had not been interrupted.
TEST(ResidentStage, StepsThatOverlapGoOnFromEverySource) {
  const auto unbroken = NewOverlapping();
  ASSERT_TRUE(unbroken->BeginFrom({}, nullptr).ok());
  TrainOverlapping(*unbroken, 1, 6);
  for (const Source source : {Source::kParameters, Source::kSnapshot, Source::kFiles}) {
    auto resident = NewOverlapping();
    ASSERT_TRUE(resident->BeginFrom({}, nullptr).ok());
    TrainOverlapping(*resident, 1, 3);
    Checkpoint(*resident, "a");
    SharedSnapshot read;
    if (source == Source::kSnapshot) TrainOverlapping(*resident, 4, 4);
    if (source == Source::kFiles) {
      read = resident->snapshot();
      resident = NewOverlapping();
    }
    EXPECT_EQ(resident->SourceOf(OriginOf(3, "a")), source);
    // A pass of the next step is dropped.
    if (source == Source::kParameters) ForwardAndBackward(resident->ModelFor(Step(4)), 0);
    ASSERT_TRUE(resident->EndEpoch(absl::CancelledError("an abort")).ok());
    ASSERT_TRUE(resident->BeginFrom(OriginOf(3, "a"), read).ok());
    TrainOverlapping(*resident, 4, 6);
    ExpectSame(**resident->TakeSnapshot(), **unbroken->TakeSnapshot());
  }
}

TEST(ResidentStage, StaysWhereTheFaultIsElsewhere) {
  const auto resident = NewResident();
  EXPECT_TRUE(resident->EndEpoch(absl::OkStatus()).ok());
  EXPECT_TRUE(resident->EndEpoch(absl::UnavailableError("stage 1 is gone")).ok());
  // The optimizer may have gone through half of the parameters.
  const Status own = absl::InternalError("optimizer step: the device is gone");
  EXPECT_EQ(resident->EndEpoch(own), own);
}

TEST(ResidentIdentity, OnlyKeysOfStepsMayDiffer) {
  const ResidentIdentity identity = IdentityOf(OptionsOf());
  ResidentIdentity other = identity;
  other.options.train.steps = 99;
  other.options.train.schedule.warmup = 7;
  other.options.train.optimizer.lr = 1;
  other.options.train.optimizer.clip_norm = 7;
  EXPECT_TRUE(identity.IsSame(other));
  const auto differs = [&](auto change) {
    ResidentIdentity changed = identity;
    change(changed);
    return !identity.IsSame(changed);
  };
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.run = RunId("another"); }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.group.tensor = 2; }));
  EXPECT_TRUE(
      differs([](ResidentIdentity& one) { one.options.group.forward = GroupCollective::kTaco; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.overlaps_steps = true; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.options.ranks = {{}, {}}; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.options.layers = 1; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.options.last = false; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.options.threads = 2; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.options.vocabulary = 300; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.options.device.cuda_index = 1; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.options.recompute = Recompute::kStage; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.options.train.microbatches = 4; }));
  EXPECT_TRUE(differs([](ResidentIdentity& one) { one.options.train.optimizer.beta2 = 0.9; }));
}

}  // namespace
}  // namespace longhaul::worker
