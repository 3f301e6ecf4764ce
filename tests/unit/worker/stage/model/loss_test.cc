// Where the logits are too large to stand in memory all at once, loss and gradients are those of
// the whole within rounding, and the same bits each time and with every kind of recomputation.
#include "worker/stage/model/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sin.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "run/model/loss_chunks.h"
#include "worker/stage/model/model.h"
#include "worker/stage/passes/microbatch_pass.h"

namespace longhaul::worker {
namespace {

constexpr int64_t kLossRows = 2, kLossContext = 149, kLossHidden = 16, kLossTokens = 298;
constexpr uint32_t kLossVocabulary = 120'000;  // 139 tokens have logits of 64 MiB

struct LossCase {
  ModelFamily family;
  bool masked, first;
};

StageOptions LossOptions(const LossCase& test, Recompute recompute) {
  StageOptions options;
  options.model.family = test.family;
  options.model.layers = 3;
  options.model.hidden = kLossHidden;
  options.model.heads = 2;
  options.model.kv_heads = 1;
  options.model.intermediate = 24;
  options.model.context = kLossContext;
  options.vocabulary = kLossVocabulary;
  options.first = test.first;
  options.layers = test.first ? 3 : 2;
  options.first_layer = test.first ? 0 : 1;
  options.train.microbatches = 2;
  options.train.microbatch_size = kLossRows;
  options.masked_targets = test.masked;
  options.recompute = recompute;
  return options;
}

PassInput LossInput(const LossCase& test) {
  const at::Tensor ids = (at::arange(kLossTokens, at::kLong) * 7919).remainder(kLossVocabulary);
  PassInput input{.source = ids.view({kLossRows, kLossContext}),
                  .targets = (ids + 1).remainder(kLossVocabulary)};
  if (!test.first) {
    input.source = at::sin(at::arange(kLossTokens * kLossHidden, at::kFloat))
                       .view({kLossRows, kLossContext, kLossHidden});
  }
  if (test.masked) {  // a whole chunk, and some of others
    input.targets.narrow(0, 70, 160).fill_(kNoTarget);
    input.counted = at::scalar_tensor(150.0, at::kFloat);
  }
  input.targets = input.targets.view({kLossRows, kLossContext});
  return input;
}

// What two microbatches leave: both are the same.
struct LossLearnt {
  at::Tensor loss, evaluated, of_input;
  std::vector<at::Tensor> gradients;
};

LossLearnt InChunks(const LossCase& test, Recompute recompute) {
  const StageOptions options = LossOptions(test, recompute);
  const std::unique_ptr<const Model> network = Model::Create(options);
  MicrobatchPasses passes(options, *network);
  const PassInput input = LossInput(test);
  LossLearnt learnt;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    const std::shared_ptr<MicrobatchPass> pass = passes.Take(input);
    learnt.loss = pass->Forward(input);
    learnt.evaluated = passes.Evaluate(input);
    learnt.of_input = pass->Backward({});
  }
  for (const Parameter& parameter : network->parameters()) {
    learnt.gradients.push_back(parameter.value.grad());
  }
  return learnt;
}

LossLearnt Whole(const LossCase& test) {
  const std::unique_ptr<const Model> network = Model::Create(LossOptions(test, Recompute::kNone));
  const PassInput input = LossInput(test);
  LossLearnt learnt;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    at::Tensor source = input.source.detach();
    if (!test.first) source.set_requires_grad(true);
    const at::Tensor loss = network->Loss(network->Forward(source), input.targets, input.counted);
    (loss / 2).backward();
    learnt.loss = learnt.evaluated = loss.detach();
    learnt.of_input = source.grad();
  }
  for (const Parameter& parameter : network->parameters()) {
    learnt.gradients.push_back(parameter.value.grad());
  }
  return learnt;
}

void ExpectNear(const at::Tensor& value, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(value.sizes(), expected.sizes()) << what;
  const double size = expected.norm().item<double>();
  EXPECT_GT(size, 0) << what;
  EXPECT_LT((value - expected).norm().item<double>(), 1e-5 * size) << what;
}

class LossInChunks : public ::testing::TestWithParam<LossCase> {};

TEST_P(LossInChunks, HasTheLossAndTheGradientsOfTheWhole) {
  ASSERT_EQ(model::LossChunksOf(kLossTokens, kLossVocabulary).count, 3u);
  const LossLearnt whole = Whole(GetParam());
  const LossLearnt kept = InChunks(GetParam(), Recompute::kNone);
  ExpectNear(kept.loss, whole.loss, "loss");
  EXPECT_TRUE(kept.evaluated.equal(kept.loss));
  EXPECT_EQ(kept.of_input.defined(), !GetParam().first);
  if (kept.of_input.defined()) ExpectNear(kept.of_input, whole.of_input, "of input");
  ASSERT_EQ(kept.gradients.size(), whole.gradients.size());
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    ExpectNear(kept.gradients[i], whole.gradients[i], fmt::format("parameter {}", i));
  }
  // Both families and both places of the stage are among the masked ones.
  const std::vector<Recompute> kinds =
      GetParam().masked ? std::vector{Recompute::kNone, Recompute::kBlocks, Recompute::kStage}
                        : std::vector{Recompute::kStage};
  for (const Recompute recompute : kinds) {
    const LossLearnt again = InChunks(GetParam(), recompute);
    EXPECT_TRUE(again.loss.equal(kept.loss)) << ToString(recompute);
    EXPECT_TRUE(again.evaluated.equal(kept.loss)) << ToString(recompute);
    if (kept.of_input.defined()) {
      EXPECT_TRUE(again.of_input.equal(kept.of_input)) << ToString(recompute);
    }
    for (size_t i = 0; i < kept.gradients.size(); ++i) {
      EXPECT_TRUE(again.gradients[i].equal(kept.gradients[i])) << ToString(recompute) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, LossInChunks,
                         ::testing::Values(LossCase{ModelFamily::kGpt, false, true},
                                           LossCase{ModelFamily::kGpt, true, false},
                                           LossCase{ModelFamily::kLlama, true, true},
                                           LossCase{ModelFamily::kLlama, false, false}),
                         [](const auto& test) {
                           return fmt::format("{}{}{}", ToString(test.param.family),
                                              test.param.masked ? "Masked" : "",
                                              test.param.first ? "Whole" : "Last");
                         });

TEST(LossChunks, AreAlikeAndAsLargeAsTheyMayBe) {
  EXPECT_EQ(model::LossChunksOf(2048, 256).count, 1u);
  EXPECT_EQ(model::LossChunksOf(2048, 8192).count, 1u);  // 64 MiB to the byte
  EXPECT_EQ(model::LossChunksOf(2048, 8192).tokens, 2048u);
  EXPECT_EQ(model::LossChunksOf(2048, 8193).count, 2u);
  EXPECT_EQ(model::LossChunksOf(2048, 8193).tokens, 1024u);
  EXPECT_EQ(model::LossChunksOf(2048, 151'936).count, 16u);  // of 128 tokens
  EXPECT_EQ(model::LossChunksOf(1, 1u << 24).count, 1u);
  for (const uint64_t tokens : {1ull, 127ull, 129ull, 1000ull, 4099ull}) {
    const model::LossChunks chunks = model::LossChunksOf(tokens, 50'257);
    EXPECT_GE(chunks.count * chunks.tokens, tokens);
    EXPECT_LT((chunks.count - 1) * chunks.tokens, tokens);
  }
}

}  // namespace
}  // namespace longhaul::worker
