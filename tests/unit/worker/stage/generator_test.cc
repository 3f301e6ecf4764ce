#include "worker/stage/generator.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "run/published/weights.h"
#include "worker/stage/model/model.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::string FolderOf(const std::string& name) {
  return std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/models/" + name;
}

// A model of tests/fixtures/models.
struct Published {
  explicit Published(const std::string& name) : folder(FolderOf(name)) {
    weights = published::ReadFolder(folder).value();
    options.model = published::ParseConfig(weights.config_json, "config.json")->model;
  }
  ReadParameter read() const {
    return [this](const model::PlacedParameter& parameter, std::span<float> values) -> Status {
      LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                          published::TensorOf(weights, options.model, parameter));
      LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                          published::ReadTensor(folder, *tensor));
      published::Decode(*tensor, bytes, parameter.parameter, values);
      return absl::OkStatus();
    };
  }
  std::unique_ptr<Generator> Make() const { return Generator::Create(options, read()).value(); }

  std::string folder;
  published::Weights weights;
  GeneratorOptions options;
};

const std::vector<int32_t> kPrompt = {9, 15, 24, 4, 48, 80, 56, 67};

struct Greedy {
  std::string model;
  std::vector<int32_t> ids;  // of transformers' generate without sampling
};
class GeneratorOf : public ::testing::TestWithParam<Greedy> {};
INSTANTIATE_TEST_SUITE_P(
    Models, GeneratorOf,
    ::testing::Values(
        Greedy{"gpt2", {38, 71, 71, 71, 71, 71, 71, 71, 38, 38, 76, 71, 71, 71, 76, 33}},
        Greedy{"llama3", {31, 70, 35, 88, 35, 8, 71, 35, 35, 5, 35, 23, 35, 23, 5, 35}},
        Greedy{"qwen2_5", {5, 42, 18, 18, 75, 10, 44, 74, 42, 33, 30, 8, 44, 83, 5, 1}},
        Greedy{"qwen3", {6, 45, 59, 4, 7, 6, 68, 35, 50, 61, 45, 83, 9, 7, 81, 58}},
        Greedy{"smollm3", {6, 35, 35, 52, 28, 16, 85, 3, 5, 85, 3, 85, 85, 85, 85, 85}},
        Greedy{"mixtral", {47, 90, 47, 81, 81, 19, 90, 83, 17, 19, 55, 81, 19, 51, 81, 81}},
        Greedy{"qwen2_moe", {9, 4, 67, 70, 90, 12, 70, 67, 45, 45, 70, 47, 24, 70, 66, 71}},
        Greedy{"qwen3_moe", {14, 14, 71, 71, 71, 71, 71, 71, 71, 71, 71, 71, 71, 71, 71, 71}},
        Greedy{"olmo2", {65, 85, 6, 85, 89, 65, 41, 85, 23, 63, 73, 65, 41, 85, 7, 73}},
        Greedy{"phi3", {89, 36, 7, 81, 81, 81, 46, 21, 8, 80, 53, 85, 73, 50, 80, 95}},
        Greedy{"gemma2", {51, 11, 89, 46, 46, 11, 11, 3, 3, 3, 3, 3, 3, 3, 25, 81}},
        Greedy{"gemma3", {11, 25, 25, 25, 59, 73, 32, 81, 45, 83, 63, 63, 63, 7, 7, 7}},
        Greedy{"mistral_window", {57, 73, 46, 57, 73, 57, 73, 57, 57, 15, 61, 75, 61, 15, 61, 15}},
        Greedy{"qwen2_window", {90, 34, 69, 90, 90, 90, 58, 58, 58, 90, 90, 58, 90, 53, 90, 58}},
        Greedy{"llama_yarn", {7, 48, 35, 8, 42, 61, 89, 81, 71, 71, 35, 35, 35, 12, 35, 18}}),
    [](const auto& test) { return test.param.model; });

TEST_P(GeneratorOf, TakesTheTokensThatTransformersTakes) {
  const Published published(GetParam().model);
  const auto generator = published.Make();
  for (int round = 0; round < 2; ++round) {  // after Clear all is as in the beginning
    std::vector<int32_t> ids, next = kPrompt;
    while (ids.size() < GetParam().ids.size()) {
      const auto logits = generator->Next(next);
      ASSERT_TRUE(logits.ok()) << logits.status();
      next = {static_cast<int32_t>(Sample(*logits, {.temperature = 0}, ids.size()))};
      ids.push_back(next[0]);
    }
    EXPECT_THAT(ids, ElementsAreArray(GetParam().ids));
    generator->Clear();
  }
}

TEST_P(GeneratorOf, GivesTheLogitsOfTheWholeText) {
  const Published published(GetParam().model);
  StageOptions options;
  options.model = published.options.model;
  options.vocabulary = *options.model.vocabulary;
  options.layers = options.model.layers;
  options.loads = true;
  const auto whole = Model::Create(options);
  ASSERT_TRUE(whole->Load(published.read()).ok());
  std::vector<int64_t> text(kPrompt.begin(), kPrompt.end());
  text.insert(text.end(), GetParam().ids.begin(), GetParam().ids.end());
  text.resize(options.model.context, 0);
  const at::NoGradGuard no_grad;
  const at::Tensor expected =
      whole->Forward(at::tensor(text).view({1, static_cast<int64_t>(text.size())}))[0];

  const auto generator = published.Make();
  std::vector<int32_t> next = kPrompt;
  int64_t last = static_cast<int64_t>(kPrompt.size()) - 1;
  for (const int32_t id : GetParam().ids) {
    const std::span<const float> logits = generator->Next(next).value();
    const at::Tensor ours = at::from_blob(const_cast<float*>(logits.data()),
                                          {static_cast<int64_t>(logits.size())}, at::kFloat);
    EXPECT_LT((ours - expected[last++]).abs().max().item<double>(), 1e-4);
    next = {id};
  }
}

// As samples of a run that trains take them: row 1 of 2, padded behind the prompt, in slices.
TEST_P(GeneratorOf, AStageTakesTheSameTokenWithoutACache) {
  const Published published(GetParam().model);
  StageOptions options;
  options.model = published.options.model;
  options.vocabulary = *options.model.vocabulary;
  options.layers = options.model.layers;
  options.loads = true;
  options.train.microbatches = 1;
  options.train.microbatch_size = 2;
  options.slices = options.model.has_experts() ? 1 : 2;
  auto stage = Stage::Create(options);
  ASSERT_TRUE(stage.ok()) << stage.status();
  ASSERT_TRUE((*stage)->Load(published.read()).ok());
  const uint32_t context = options.model.context, length = options.slice_tokens();
  std::vector<int32_t> tokens(size_t{2} * context, 0), row = kPrompt;
  for (const int32_t id : GetParam().ids) {
    std::ranges::copy(row, tokens.begin() + context);
    const auto at = static_cast<uint32_t>(row.size()) - 1;
    std::vector<float> logits;
    for (uint32_t slice = 0; slice < options.slices; ++slice) {
      std::vector<Stage::Place> places;
      if (at / length == slice) places.push_back({.row = 1, .token = at % length});
      auto got = (*stage)->EvaluateLogits({Microbatch(0), slice}, {.tokens = tokens}, places);
      ASSERT_TRUE(got.ok()) << got.status();
      if (!places.empty()) logits = *std::move(got);
    }
    ASSERT_EQ(logits.size(), options.vocabulary);
    ASSERT_EQ(Sample(logits, {.temperature = 0}, 0), static_cast<uint32_t>(id)) << row.size();
    row.push_back(id);
  }
}

// Embeddings that depend on how long a text becomes.
TEST(Generator, StretchesEmbeddingsForTheContextItIsGiven) {
  const std::vector<int32_t> prompt = {9,  15, 24, 4,  48, 80, 56, 67, 60, 2,
                                       31, 81, 42, 72, 78, 95, 44, 61, 93, 9};
  for (const auto& [model, ids] : {Greedy{"phi3_long", {35, 35, 35, 35, 35, 35, 35, 35}},
                                   Greedy{"llama_dynamic", {23, 23, 81, 46, 46, 50, 81, 61}}}) {
    Published published(model);
    published.options.model.context = 28;
    const auto generator = published.Make();
    std::vector<int32_t> taken, next = prompt;
    while (taken.size() < ids.size()) {
      next = {static_cast<int32_t>(Sample(*generator->Next(next), {.temperature = 0}, 0))};
      taken.push_back(next[0]);
    }
    EXPECT_THAT(taken, ElementsAreArray(ids)) << model;
  }
}

TEST(Generator, RefusesWhatCannotFollow) {
  const auto generator = Published("qwen2_5").Make();
  const auto error = [](const auto& status) { return std::string(Message(status.status())); };
  EXPECT_THAT(error(generator->Next({})), HasSubstr("at least one token"));
  EXPECT_THAT(error(generator->Next(std::vector<int32_t>{96})), HasSubstr("vocabulary of 96"));
  EXPECT_THAT(error(generator->Next(std::vector<int32_t>{-1})), HasSubstr("came -1"));
  EXPECT_THAT(error(generator->Next(std::vector<int32_t>(33, 1))), HasSubstr("at most 32 tokens"));
  ASSERT_TRUE(generator->Next(std::vector<int32_t>(32, 1)).ok());
  EXPECT_TRUE(absl::IsOutOfRange(generator->Next(std::vector<int32_t>{1}).status()));
}

TEST(Sample, FollowsTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  const auto shares = [&](const Sampling& sampling) {
    constexpr int kDraws = 20'000;
    std::vector<double> counts(logits.size(), 0);
    for (int i = 0; i < kDraws; ++i) counts[Sample(logits, sampling, i)] += 1.0 / kDraws;
    return counts;
  };
  const auto near = [](double value) { return ::testing::DoubleNear(value, 0.015); };
  using ::testing::ElementsAre;
  EXPECT_THAT(shares({}), ElementsAre(near(0.5), near(0.3), near(0.15), near(0.05)));
  EXPECT_THAT(shares({.top_k = 2}), ElementsAre(near(0.625), near(0.375), 0, 0));
  EXPECT_THAT(shares({.top_p = 0.9}), ElementsAre(near(0.526), near(0.316), near(0.158), 0));
  EXPECT_THAT(shares({.top_p = 0.1}), ElementsAre(near(1), 0, 0, 0));
  EXPECT_THAT(shares({.temperature = 0}), ElementsAre(near(1), 0, 0, 0));
  EXPECT_THAT(shares({.temperature = 0.5}),
              ElementsAre(near(0.685), near(0.247), near(0.0616), near(0.0068)));
  EXPECT_NE(Sample(logits, {.seed = 1}, 3) * 1000 + Sample(logits, {.seed = 1}, 4) * 100 +
                Sample(logits, {.seed = 1}, 5) * 10 + Sample(logits, {.seed = 1}, 6),
            Sample(logits, {.seed = 2}, 3) * 1000 + Sample(logits, {.seed = 2}, 4) * 100 +
                Sample(logits, {.seed = 2}, 5) * 10 + Sample(logits, {.seed = 2}, 6));
}

}  // namespace
}  // namespace longhaul::worker
