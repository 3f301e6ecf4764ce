// Texts that grow by a token in each pass, as rows of microbatches that may be cut into slices.
#include "worker/pipeline/sample_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/unit/worker/tiny_run.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kVocabulary = 4;

std::vector<float> Logits(const std::vector<uint32_t>& likeliest) {
  std::vector<float> logits;
  for (const uint32_t id : likeliest) {
    for (uint32_t i = 0; i < kVocabulary; ++i) logits.push_back(i == id ? 2 : 0);
  }
  return logits;
}

SampleRound Round(const wire::SampleRound& shape, const std::vector<std::string>& overrides = {}) {
  StatusOr<SampleRound> round = SampleRound::Create(shape, TinySpec(overrides));
  EXPECT_TRUE(round.ok()) << round.status();
  return *std::move(round);
}

// The places of all slices of a microbatch, as row and token of the whole row.
std::vector<std::vector<uint32_t>> PlacesOf(const SampleRound& round, uint32_t microbatch,
                                            uint32_t slices, uint32_t slice_tokens) {
  std::vector<std::vector<uint32_t>> places;
  for (uint32_t slice = 0; slice < slices; ++slice) {
    for (const Stage::Place& place : round.PlacesIn({Microbatch(microbatch), slice})) {
      places.push_back({place.row, slice * slice_tokens + place.token});
    }
  }
  return places;
}

TEST(SamplesAfterTest, EverySoManyStepsAndAfterTheLast) {
  const RunSpec spec = TinySpec({"train.steps=5", "samples={every: 2, prompts: [a], tokens: 2}"});
  std::vector<uint64_t> steps;
  for (uint64_t step = 0; step <= 5; ++step) {
    if (SamplesAfter(spec, Step(step))) steps.push_back(step);
  }
  EXPECT_THAT(steps, ElementsAre(2, 4, 5));
  EXPECT_FALSE(SamplesAfter(TinySpec(), Step(3)));
}

TEST(SamplesOfTest, BytesAreTokensUnlessIdsAreSaid) {
  EXPECT_THAT(SamplesOf(TinySpec({"samples={every: 2, prompts: [ab], tokens: 2}"})).prompts,
              ElementsAre(ElementsAre(97, 98)));
  EXPECT_THAT(
      SamplesOf(TinySpec({"samples={every: 2, prompts: [ab], ids: [[7]], tokens: 2}"})).prompts,
      ElementsAre(ElementsAre(7)));
}

TEST(SampleRoundTest, TextsGrowInTheRowsOfTheirMicrobatches) {
  // Three texts in two microbatches of two rows of 8 tokens.
  SampleRound round =
      Round({.tokens = 3, .lengths = {2, 4, 1}, .stops = {}}, {"train.microbatch_size=2"});
  round.SetPrompts({{1, 2}, {1, 1, 1, 3}, {2}});
  EXPECT_EQ(round.microbatches(), 2u);
  EXPECT_THAT(round.TokensOf(Microbatch(0)),
              ElementsAre(1, 2, 0, 0, 0, 0, 0, 0, 1, 1, 1, 3, 0, 0, 0, 0));
  EXPECT_THAT(PlacesOf(round, 0, 1, 8), ElementsAre(ElementsAre(0, 1), ElementsAre(1, 3)));
  EXPECT_THAT(PlacesOf(round, 1, 1, 8), ElementsAre(ElementsAre(0, 0)));
  ASSERT_TRUE(round.AddLogits(Microbatch(0), Logits({3, 2})).ok());
  ASSERT_TRUE(round.AddLogits(Microbatch(1), Logits({1})).ok());
  const wire::SampledTokens sampled = round.Sampled();
  EXPECT_THAT(sampled.tokens, ElementsAre(3, 2, 1));
  EXPECT_FALSE(sampled.over);
  ASSERT_TRUE(round.Append(sampled).ok());
  EXPECT_THAT(round.TokensOf(Microbatch(0)),
              ElementsAre(1, 2, 3, 0, 0, 0, 0, 0, 1, 1, 1, 3, 2, 0, 0, 0));
  EXPECT_THAT(round.TokensOf(Microbatch(1)),
              ElementsAre(2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(PlacesOf(round, 0, 1, 8), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 4)));
}

TEST(SampleRoundTest, TheSliceThatHasALastTokenGivesItsLogits) {
  SampleRound round = Round({.tokens = 3, .lengths = {4, 2}, .stops = {}},
                            {"train.microbatch_size=2", "pipeline.slices=2"});
  EXPECT_THAT(PlacesOf(round, 0, 2, 4), ElementsAre(ElementsAre(0, 3), ElementsAre(1, 1)));
  EXPECT_EQ(round.PlacesIn({Microbatch(0), 0}).size(), 2u);
  ASSERT_TRUE(round.AddLogits({Microbatch(0), 0}, Logits({1, 1})).ok());
  ASSERT_TRUE(round.AddLogits({Microbatch(0), 1}, {}).ok());
  ASSERT_TRUE(round.Append(round.Sampled()).ok());
  EXPECT_EQ(round.PlacesIn({Microbatch(0), 0}).size(), 1u);
  EXPECT_EQ(round.PlacesIn({Microbatch(0), 1}).size(), 1u);
}

TEST(SampleRoundTest, ATextEndsAtAnEndTokenAndARoundWithItsTexts) {
  SampleRound round =
      Round({.tokens = 4, .lengths = {1, 1}, .stops = {3}}, {"train.microbatch_size=2"});
  ASSERT_TRUE(round.AddLogits(Microbatch(0), Logits({3, 1})).ok());
  ASSERT_TRUE(round.Append(round.Sampled()).ok());
  EXPECT_FALSE(round.is_over());
  EXPECT_EQ(round.PlacesIn(Microbatch(0)).size(), 1u);
  ASSERT_TRUE(round.AddLogits(Microbatch(0), Logits({3})).ok());
  ASSERT_TRUE(round.Append(round.Sampled()).ok());
  EXPECT_TRUE(round.is_over());
  EXPECT_THAT(round.sampled(), ElementsAre(ElementsAre(), ElementsAre(1)));
}

TEST(SampleRoundTest, EndsWithItsTokensOrWhereLogitsAreNotFinite) {
  SampleRound round = Round({.tokens = 2, .lengths = {1}, .stops = {}});
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_FALSE(round.is_over());
    ASSERT_TRUE(round.AddLogits(Microbatch(0), Logits({2})).ok());
    ASSERT_TRUE(round.Append(round.Sampled()).ok());
  }
  EXPECT_TRUE(round.is_over());
  EXPECT_FALSE(round.is_nonfinite());
  EXPECT_THAT(round.sampled(), ElementsAre(ElementsAre(2, 2)));

  SampleRound diverged = Round({.tokens = 2, .lengths = {1}, .stops = {}});
  std::vector<float> logits = Logits({2});
  logits[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(diverged.AddLogits(Microbatch(0), logits).ok());
  ASSERT_TRUE(diverged.Append(diverged.Sampled()).ok());
  EXPECT_TRUE(diverged.is_over() && diverged.is_nonfinite());
}

TEST(SampleRoundTest, RefusesWhatANeighbourMayNotSay) {
  const RunSpec spec = TinySpec();
  EXPECT_FALSE(SampleRound::Create({.tokens = 3, .lengths = {}, .stops = {}}, spec).ok());
  EXPECT_FALSE(SampleRound::Create({.tokens = 3, .lengths = {6}, .stops = {}}, spec).ok());
  EXPECT_FALSE(SampleRound::Create({.tokens = 3, .lengths = {0}, .stops = {}}, spec).ok());
  EXPECT_FALSE(SampleRound::Create({.tokens = 9999, .lengths = {1}, .stops = {}}, spec).ok());
  SampleRound round = Round({.tokens = 1, .lengths = {1}, .stops = {}});
  EXPECT_FALSE(round.Append({.over = true, .nonfinite = false, .tokens = {1, 2}}).ok());
  SampleRound endless = Round({.tokens = 1, .lengths = {1}, .stops = {}});
  EXPECT_FALSE(endless.Append({.over = false, .nonfinite = false, .tokens = {1}}).ok());
}

TEST(ProblemOfTest, SaysWhatIsWrongWithARequest) {
  const RunSpec spec = TinySpec();
  SamplesRequested request{.request = 1, .prompts = {{1, 2}}, .round = {.tokens = 6}};
  EXPECT_EQ(ProblemOf(request, spec, kVocabulary), "");
  request.round.tokens = 7;
  EXPECT_THAT(ProblemOf(request, spec, kVocabulary), HasSubstr("a prompt of 2 tokens and 7 new"));
  request.round.tokens = 1;
  request.prompts = {{kVocabulary}};
  EXPECT_THAT(ProblemOf(request, spec, kVocabulary), HasSubstr("below the vocabulary of 4, got 4"));
  request.prompts = {};
  EXPECT_THAT(ProblemOf(request, spec, kVocabulary), HasSubstr("1 to 16 prompts, got 0"));
}

}  // namespace
}  // namespace longhaul::worker
