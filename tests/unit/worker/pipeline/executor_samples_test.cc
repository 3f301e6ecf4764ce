// Samples between two steps, at the first and at the last stage of two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/worker/pipeline/executor_harness.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSamples[] = "samples={every: 2, prompts: [ab], tokens: 2}";

class ExecutorSamplesTest : public ExecutorTest {
 protected:
  // The neighbour's part of a round below the first stage: it takes `tokens` in turn.
  void PeerSamples(uint64_t step, const std::vector<uint32_t>& tokens, uint32_t first_number = 0) {
    for (uint32_t pass = 0; pass < tokens.size(); ++pass) {
      const auto arrived = PeerHears<TensorArrived>();
      EXPECT_EQ(arrived.pass, (Pass{Step(step), PassKind::kSampling, first_number + pass}));
      peer_->SendTaken(arrived.pass, arrived.slice);
      peer_->SendSampledTokens(
          Step(step),
          {.over = pass + 1 == tokens.size(), .nonfinite = false, .tokens = {tokens[pass]}});
    }
  }
  std::vector<v1::SampleReport> SampleReports() {
    std::vector<v1::SampleReport> samples;
    for (const v1::WorkerMessage& report : Reports()) {
      if (report.has_samples()) samples.push_back(report.samples());
    }
    return samples;
  }
  SamplesRequested Request(uint64_t id, std::vector<uint32_t> prompt, uint32_t tokens = 1) {
    return {.request = id, .prompts = {std::move(prompt)}, .round = {.tokens = tokens}};
  }
};

TEST_F(ExecutorSamplesTest, TheFirstStageBeginsRoundsByTheRunFileAndReportsTheirTexts) {
  Begin(0, {kSamples});
  PeerIsTheLastStage(1);
  PeerIsTheLastStage(2);
  const auto round = PeerHears<SampleRoundArrived>();
  EXPECT_EQ(round.step, Step(2));
  EXPECT_THAT(round.round.lengths, ElementsAre(2));
  EXPECT_EQ(round.round.tokens, 2u);
  PeerSamples(2, {'c', 'd'});
  PeerIsTheLastStage(3);
  EXPECT_EQ(PeerHears<SampleRoundArrived>().step, Step(3)) << "one follows the last step";
  PeerSamples(3, {'x', 'y'});
  EXPECT_EQ(Result(), absl::OkStatus());
  const auto reports = SampleReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].step(), 2u);
  EXPECT_EQ(reports[0].request(), 0u);
  ASSERT_EQ(reports[0].samples_size(), 1);
  EXPECT_EQ(reports[0].samples(0).prompt(), "ab");
  EXPECT_EQ(reports[0].samples(0).text(), "cd");
  EXPECT_EQ(reports[1].samples(0).text(), "xy");
}

TEST_F(ExecutorSamplesTest, ARequestIsTakenAfterTheStepInWhichItIsHeard) {
  Begin(0);
  executor_->RequestSamples(Request(5, {'h', 'i'}));
  executor_->RequestSamples(Request(6, {'y', 'o'}));
  PeerIsTheLastStage(1);
  EXPECT_EQ(PeerHears<StepControlArrived>().message.samples, 2u);
  PeerSamples(1, {'!'});
  PeerSamples(1, {'?'}, /*first_number=*/1);
  PeerIsTheLastStage(2);
  EXPECT_EQ(PeerHears<StepControlArrived>().message.samples, 0u);
  PeerIsTheLastStage(3);
  EXPECT_EQ(Result(), absl::OkStatus());
  const auto reports = SampleReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].request(), 5u);
  EXPECT_EQ(reports[0].step(), 1u);
  EXPECT_THAT(reports[0].samples(0).prompt_ids(), ElementsAre('h', 'i'));
  EXPECT_THAT(reports[0].samples(0).ids(), ElementsAre('!'));
  EXPECT_EQ(reports[1].samples(0).text(), "?");
}

TEST_F(ExecutorSamplesTest, ARequestThatCannotBeTakenCostsNoPass) {
  Begin(0);
  executor_->RequestSamples(Request(5, {'h', 300}));
  PeerIsTheLastStage(1);
  EXPECT_EQ(PeerHears<SampleRoundArrived>().round, wire::SampleRound());
  PeerIsTheLastStage(2);
  PeerIsTheLastStage(3);
  EXPECT_EQ(Result(), absl::OkStatus());
  const auto reports = SampleReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_THAT(reports[0].problem(), HasSubstr("below the vocabulary of 256, got 300"));
}

TEST_F(ExecutorSamplesTest, MoreRequestsThanMayWaitAreRefused) {
  Begin(0);
  for (uint64_t id = 1; id <= wire::kMostSampleRounds + 1; ++id) {
    executor_->RequestSamples(Request(id, {'a'}));
  }
  PeerIsTheLastStage(1);
  EXPECT_EQ(PeerHears<StepControlArrived>().message.samples, wire::kMostSampleRounds);
  for (uint32_t i = 0; i < wire::kMostSampleRounds; ++i) PeerSamples(1, {'b'}, i);
  PeerIsTheLastStage(2);
  PeerIsTheLastStage(3);
  EXPECT_EQ(Result(), absl::OkStatus());
  const auto reports = SampleReports();
  ASSERT_EQ(reports.size(), wire::kMostSampleRounds + 1);
  EXPECT_EQ(reports[0].request(), wire::kMostSampleRounds + 1);
  EXPECT_THAT(reports[0].problem(), HasSubstr("wait already"));
}

// A report fits into the coordinator's 64 KiB, and a cut leaves whole characters.
TEST_F(ExecutorSamplesTest, LongTextsAreCut) {
  std::string prompt = "x";
  while (prompt.size() < 1000) prompt += "\xc3\xa9";
  std::string sixteen = "\"" + prompt + "\"";
  for (int i = 1; i < 16; ++i) sixteen += ", \"" + prompt + "\"";
  Begin(0, {"model.context=1024", "train.steps=1",
            "samples={every: 1, tokens: 1, prompts: [" + sixteen + "]}"});
  PeerIsTheLastStage(1);
  for (uint32_t i = 0; i < 16; ++i) {
    const auto arrived = PeerHears<TensorArrived>();
    peer_->SendTaken(arrived.pass, arrived.slice);
  }
  peer_->SendSampledTokens(
      Step(1), {.over = true, .nonfinite = false, .tokens = std::vector<uint32_t>(16, 'a')});
  EXPECT_EQ(Result(), absl::OkStatus());
  const auto reports = SampleReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_LT(reports[0].ByteSizeLong(), size_t{64} << 10);
  const std::string shown = reports[0].samples(15).prompt();
  EXPECT_TRUE(prompt.starts_with(shown.substr(0, shown.size() - 3))) << shown;
  EXPECT_EQ(shown.size() % 2, 0u) << shown;  // one letter, whole characters of two bytes, "..."
}

// The last stage takes the likeliest token at the text's last place, wherever the padding is.
TEST_F(ExecutorSamplesTest, TheLastStageTakesTokensAtTheTextsEnd) {
  Begin(1, {kSamples});
  const auto train = [&](uint64_t step) {
    PeerDecides(step, {.squared_norm = PeerIsTheFirstStage(step)});
  };
  train(1);
  train(2);
  peer_->SendSampleRound(Step(2), {.tokens = 2, .lengths = {2}, .stops = {}});
  std::vector<uint32_t> tokens;
  for (uint32_t pass = 0; pass < 2; ++pass) {
    PeerSends(Pass{Step(2), PassKind::kSampling, pass}, 0, 0.5f);
    const auto arrived = PeerHears<SampledTokensArrived>();
    EXPECT_EQ(arrived.step, Step(2));
    EXPECT_EQ(arrived.sampled.over, pass == 1);
    ASSERT_EQ(arrived.sampled.tokens.size(), 1u);
    EXPECT_LT(arrived.sampled.tokens[0], 256u);
  }
  train(3);
  peer_->SendSampleRound(Step(3), {});  // the first stage has found a problem
  EXPECT_EQ(Result(), absl::OkStatus());
}

// Samples change nothing of what a stage trains.
TEST_F(ExecutorSamplesTest, TheParametersAreThoseOfARunWithoutSamples) {
  const auto trained = [&](bool samples) {
    resident_.reset();
    Begin(1, samples ? std::vector<std::string>{kSamples} : std::vector<std::string>());
    for (uint64_t step = 1; step <= 3; ++step) {
      PeerDecides(step, {.squared_norm = PeerIsTheFirstStage(step)});
      if (!samples || step == 1) continue;
      peer_->SendSampleRound(Step(step), {.tokens = 2, .lengths = {3}, .stops = {}});
      for (uint32_t pass = 0; pass < 2; ++pass) {
        PeerSends(Pass{Step(step), PassKind::kSampling, pass}, 0, 0.5f);
        PeerHears<SampledTokensArrived>();
      }
    }
    EXPECT_EQ(Result(), absl::OkStatus());
    return resident_->model().Snapshot().value();
  };
  const StageSnapshot with = trained(true);
  events_ = std::make_shared<EventQueue>();
  peer_events_ = std::make_shared<EventQueue>();
  heard_.clear();
  transport_ = NewTransport();
  peer_transport_ = NewTransport();
  const StageSnapshot without = trained(false);
  ASSERT_EQ(with.parameters.size(), without.parameters.size());
  for (size_t i = 0; i < with.parameters.size(); ++i) {
    EXPECT_EQ(with.parameters[i].values, without.parameters[i].values) << with.parameters[i].name;
  }
}

// A neighbour that says nonsense ends the stage, as in a step.
TEST_F(ExecutorSamplesTest, ARoundOfAnotherStepIsRefused) {
  Begin(1, {kSamples});
  for (uint64_t step = 1; step <= 2; ++step) {
    PeerDecides(step, {.squared_norm = PeerIsTheFirstStage(step)});
  }
  peer_->SendSampleRound(Step(9), {.tokens = 2, .lengths = {2}, .stops = {}});
  EXPECT_THAT(std::string(Result().message()), HasSubstr("samples after step 2"));
}

}  // namespace
}  // namespace longhaul::worker
