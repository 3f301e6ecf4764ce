#include "worker/stage/stage.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/worker/stage/stage_of.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Families, StageOf,
                         ::testing::Values(ModelFamily::kGpt, ModelFamily::kLlama,
                                           ModelFamily::kMoe),
                         [](const auto& test) { return std::string(ToString(test.param)); });

TEST_P(StageOf, StartsNearTheLossOfGuessing) {
  const auto stage = Make(WholeModel());
  const Example example(1);
  auto output = stage->Forward(Microbatch(0), example.input());
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_FALSE(output->has_value());
  EXPECT_NEAR(stage->Loss(Microbatch(0)).value(), std::log(256.0), 0.1);
  double evaluated = 0;
  ASSERT_TRUE(stage->Evaluate(Slice(), example.input(), &evaluated).ok());
  EXPECT_EQ(evaluated, stage->Loss(Microbatch(0)).value());
}

TEST_P(StageOf, LearnsAnExampleByHeart) {
  const auto stage = Make(WholeModel());
  const Example example(1);
  double first = 0, last = 0;
  for (uint64_t step = 1; step <= 30; ++step) {
    ASSERT_TRUE(stage->Forward(Microbatch(0), example.input()).ok());
    last = stage->Loss(Microbatch(0)).value();
    if (step == 1) first = last;
    ASSERT_TRUE(stage->Backward(Microbatch(0), {}).ok());
    ASSERT_TRUE(stage->OptimizerStep(Step(step), 1e-2, 1).ok());
  }
  EXPECT_LT(last, first / 4);
}

// d loss / d input, against the difference of two losses along a direction.
TEST_P(StageOf, InputGradientIsTheDerivativeOfTheLoss) {
  const auto stage = Make(LastStage());
  const Example example(1), direction(2);
  const auto loss_at = [&](float t) {
    Example moved = example;
    for (size_t i = 0; i < moved.values.size(); ++i) moved.values[i] += t * direction.values[i];
    double loss = 0;
    EXPECT_TRUE(stage->Evaluate(Slice(), moved.input(), &loss).ok());
    return loss;
  };
  const double numeric = (loss_at(0.01f) - loss_at(-0.01f)) / 0.02;
  ASSERT_TRUE(stage->Forward(Microbatch(0), example.input()).ok());
  const auto gradient = stage->Backward(Microbatch(0), {});
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  const std::vector<float> values = Values(*gradient);
  double analytic = 0;
  for (size_t i = 0; i < values.size(); ++i) analytic += values[i] * direction.values[i];
  // Backward scales by 1 / microbatches.
  EXPECT_GT(std::abs(numeric), 1e-3);
  EXPECT_NEAR(2 * analytic, numeric, 0.02 * std::abs(numeric));
}

TEST_P(StageOf, OutputsOutliveTheStageAndTheNextMicrobatch) {
  auto stage = Make(MiddleStage());
  const Example one(1), two(2);
  const auto first = stage->Forward(Microbatch(0), one.input());
  const std::vector<float> before = Values(*first);
  ASSERT_TRUE(stage->Forward(Microbatch(1), two.input()).ok());
  ASSERT_TRUE(stage->Backward(Microbatch(0), two.activation()).ok());
  stage.reset();
  EXPECT_EQ(Values(*first), before);
}

TEST_P(StageOf, InputIsCopied) {
  const auto stage = Make(MiddleStage());
  const auto reference = Make(MiddleStage());
  Example example(1);
  const Example gradient(2);
  ASSERT_TRUE(stage->Forward(Microbatch(0), example.input()).ok());
  ASSERT_TRUE(reference->Forward(Microbatch(0), example.input()).ok());
  std::fill(example.values.begin(), example.values.end(), 9.0f);
  const auto a = stage->Backward(Microbatch(0), gradient.activation());
  const auto b = reference->Backward(Microbatch(0), gradient.activation());
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(Values(*a), Values(*b));
}

TEST_P(StageOf, TakesHalfPrecisionInputs) {
  const auto stage = Make(MiddleStage());
  // Exact in all three formats: 1.5 at every place.
  const size_t count = size_t{kRows} * kContext * kHidden;
  const std::vector<float> f32(count, 1.5f);
  const std::vector<uint16_t> f16(count, 0x3e00), bf16(count, 0x3fc0);
  const codec::Shape shape{kRows, kContext, kHidden};
  std::vector<std::vector<float>> outputs;
  for (const codec::TensorView& view :
       {codec::TensorView{f32.data(), codec::Dtype::kF32, shape},
        codec::TensorView{f16.data(), codec::Dtype::kF16, shape},
        codec::TensorView{bf16.data(), codec::Dtype::kBf16, shape}}) {
    double unused = 0;
    const auto output = stage->Evaluate(Slice(), {{}, view, {}}, &unused);
    ASSERT_TRUE(output.ok()) << output.status();
    outputs.push_back(Values(*output));
  }
  EXPECT_EQ(outputs[1], outputs[0]);
  EXPECT_EQ(outputs[2], outputs[0]);
}

TEST_P(StageOf, RefusesWrongInputsWithoutChange) {
  const auto whole = Make(WholeModel());
  const auto middle = Make(MiddleStage());
  Example example(1);
  const auto error = [](const auto& result) { return std::string(Message(result.status())); };
  Stage::Input input = example.input();
  input.tokens = input.tokens.first(5);
  EXPECT_THAT(error(whole->Forward(Microbatch(0), input)), HasSubstr("2 x 16 input ids; came 5"));
  example.targets[3] = 256;
  EXPECT_THAT(error(whole->Forward(Microbatch(0), example.input())),
              HasSubstr("target ids below the vocabulary of 256; came 256"));
  codec::TensorView view = example.activation();
  view.shape.tokens = 15;
  EXPECT_THAT(error(middle->Forward(Microbatch(0), {{}, view, {}})),
              HasSubstr("(2, 16, 32); came (2, 15, 32)"));
  EXPECT_THAT(error(middle->Backward(Microbatch(0), example.activation())),
              HasSubstr("has not run forward"));
  ASSERT_TRUE(middle->Forward(Microbatch(0), example.input()).ok());
  EXPECT_THAT(error(middle->Forward(Microbatch(0), example.input())),
              HasSubstr("has run forward already"));
  EXPECT_THAT(error(middle->Loss(Microbatch(0))), HasSubstr("only the last stage"));
  EXPECT_FALSE(middle->Backward(Microbatch(0), view).ok());
  EXPECT_TRUE(middle->Backward(Microbatch(0), example.activation()).ok());
}

TEST_P(StageOf, KeepsTheOrderOfBackwardsAndSteps) {
  const auto stage = Make(WholeModel());
  const Example example(1);
  EXPECT_THAT(std::string(Message(stage->OptimizerStep(Step(1), 1e-3, 1))),
              HasSubstr("before the last backward"));
  ASSERT_TRUE(stage->Forward(Microbatch(0), example.input()).ok());
  ASSERT_TRUE(stage->Forward(Microbatch(1), example.input()).ok());
  ASSERT_TRUE(stage->Backward(Microbatch(1), {}).ok());
  EXPECT_FALSE(stage->Backward(Microbatch(0), {}).ok());
  EXPECT_FALSE(stage->OptimizerStep(Step(1), 1e-3, 1).ok());  // 0 waits for its backward.
}

TEST_P(StageOf, RefusesToStepWithGradientsThatAreNotFinite) {
  const auto stage = Make(WholeModel());
  const Example example(1);
  ASSERT_TRUE(stage->Forward(Microbatch(0), example.input()).ok());
  ASSERT_TRUE(stage->Backward(Microbatch(0), {}).ok());
  const StageSnapshot before = stage->Snapshot().value();
  for (const double scale : {std::nan(""), 0.0, ClipScale(1, INFINITY)}) {
    EXPECT_EQ(stage->OptimizerStep(Step(1), 1e-3, scale).code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_FALSE(stage->OptimizerStep(Step(2), 1e-3, 1).ok());
  for (size_t i = 0; i < before.parameters.size(); ++i) {
    EXPECT_EQ(stage->Snapshot()->parameters[i].values, before.parameters[i].values);
  }
  EXPECT_TRUE(stage->OptimizerStep(Step(1), 1e-3, 1).ok());
}

TEST_P(StageOf, ASkippedStepCountsAndChangesNothing) {
  const auto stage = Make(WholeModel());
  Train(*stage, 1);
  EXPECT_FALSE(stage->SkipStep(Step(2)).ok()) << "nothing has run backward";
  const StageSnapshot before = stage->Snapshot().value();
  const Example example(1);
  ASSERT_TRUE(stage->Forward(Microbatch(0), example.input()).ok());
  EXPECT_FALSE(stage->SkipStep(Step(2)).ok()) << "a microbatch waits for its backward";
  ASSERT_TRUE(stage->Backward(Microbatch(0), {}).ok());
  EXPECT_FALSE(stage->SkipStep(Step(3)).ok());
  ASSERT_EQ(stage->SkipStep(Step(2)), absl::OkStatus());
  EXPECT_EQ(stage->steps(), 2u);
  const StageSnapshot after = stage->Snapshot().value();
  EXPECT_EQ(after.step, 2u);
  for (size_t i = 0; i < before.parameters.size(); ++i) {
    EXPECT_EQ(after.parameters[i].values, before.parameters[i].values);
  }
  for (size_t i = 0; i < before.moments.size(); ++i) {
    EXPECT_EQ(after.moments[i].values, before.moments[i].values);
  }
  // Its gradients are gone.
  const auto other = Make(WholeModel());
  ASSERT_TRUE(other->Restore(after).ok());
  Train(*stage, 3);
  Train(*other, 3);
  EXPECT_EQ(stage->Snapshot()->parameters[2].values, other->Snapshot()->parameters[2].values);
}

TEST_P(StageOf, GoesOnFromASnapshotAsIfNothingHadHappened) {
  const auto stage = Make(WholeModel());
  for (uint64_t step = 1; step <= 2; ++step) Train(*stage, step);
  const StageSnapshot snapshot = stage->Snapshot().value();
  EXPECT_EQ(snapshot.step, 2u);
  for (uint64_t step = 3; step <= 4; ++step) Train(*stage, step);

  StageOptions options = WholeModel();
  options.train.seed = 99;  // the initial values do not matter
  const auto resumed = Make(options);
  const Example half_done(8);
  ASSERT_TRUE(resumed->Forward(Microbatch(0), half_done.input()).ok());
  ASSERT_TRUE(resumed->Restore(snapshot).ok());
  for (uint64_t step = 3; step <= 4; ++step) Train(*resumed, step);
  const StageSnapshot expected = stage->Snapshot().value(), actual = resumed->Snapshot().value();
  for (size_t i = 0; i < expected.parameters.size(); ++i) {
    EXPECT_EQ(actual.parameters[i].values, expected.parameters[i].values)
        << expected.parameters[i].name;
  }
  for (size_t i = 0; i < expected.moments.size(); ++i) {
    EXPECT_EQ(actual.moments[i].values, expected.moments[i].values);
  }
}

// With bf16 all forwards of a step share the casts of parameters, and their gradients add up.
TEST_P(StageOf, SharedCastsPassOnEveryMicrobatchsGradient) {
  StageOptions options = WholeModel();
  options.train.dtype = ComputeDtype::kBf16;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks, Recompute::kStage}) {
    options.recompute = recompute;
    const Example example(1);
    const auto once = Make(options), twice = Make(options);
    double loss = 0;
    // Leaves nothing behind.
    ASSERT_TRUE(twice->Evaluate(Slice(), example.input(), &loss).ok());
    ASSERT_TRUE(once->Forward(Microbatch(0), example.input()).ok());
    ASSERT_TRUE(once->Backward(Microbatch(0), {}).ok());
    for (uint32_t m = 0; m < 2; ++m) {
      ASSERT_TRUE(twice->Forward(Microbatch(m), example.input()).ok());
      ASSERT_TRUE(twice->Evaluate(Slice(), example.input(), &loss).ok());
    }
    for (uint32_t m = 0; m < 2; ++m) ASSERT_TRUE(twice->Backward(Microbatch(m), {}).ok());
    const double norm = once->AddSquaredGradientNorm(0).value().sum;
    EXPECT_GT(norm, 0);
    // g + g is exact.
    EXPECT_EQ(twice->AddSquaredGradientNorm(0).value().sum, 4 * norm) << ToString(recompute);
  }
}

TEST_P(StageOf, SharedCastsAreOfTheParametersAsTheyAre) {
  StageOptions options = WholeModel();
  options.train.dtype = ComputeDtype::kBf16;
  const auto stage = Make(options);
  const StageSnapshot before = stage->Snapshot().value();
  const Example example(1);
  const auto losses = [&] {
    double evaluated = 0;
    EXPECT_TRUE(stage->Evaluate(Slice(), example.input(), &evaluated).ok());
    EXPECT_TRUE(stage->Forward(Microbatch(0), example.input()).ok());
    EXPECT_EQ(stage->Loss(Microbatch(0)).value_or(-1), evaluated);
    EXPECT_TRUE(stage->Backward(Microbatch(0), {}).ok());
    return evaluated;
  };
  const double first = losses();
  ASSERT_TRUE(stage->OptimizerStep(Step(1), 1e-2, 1).ok());
  EXPECT_NE(losses(), first);
  ASSERT_TRUE(stage->Restore(before).ok());
  EXPECT_EQ(losses(), first);
}

TEST_P(StageOf, TakesItsPartOfALargerSnapshotAndNamesWhatIsMissing) {
  const auto whole = Make(WholeModel());
  Train(*whole, 1);
  StageSnapshot snapshot = whole->Snapshot().value();
  const auto part = Make(MiddleStage());
  ASSERT_TRUE(part->Restore(snapshot).ok());
  // In a mixture four experts and the shared one have three matrices each; the router and the
  // shared expert's gate have one.
  EXPECT_EQ(part->Snapshot()->parameters.size(), GetParam() == ModelFamily::kMoe ? 23u : 12u);
  const std::string name = MlpName() + ".weight";
  EXPECT_EQ(Find(part->Snapshot()->parameters, name)->values,
            Find(snapshot.parameters, name)->values);

  StageSnapshot lacking = snapshot;
  std::erase_if(lacking.moments,
                [&](const NamedArray& array) { return array.name == name + ".exp_avg"; });
  const Status missing = part->Restore(lacking);
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(missing)), HasSubstr("has no " + name + ".exp_avg"));
  for (NamedArray& array : snapshot.parameters) {
    if (array.name == name) array.shape = {kHidden, MlpWidth()};
  }
  const Status shape = part->Restore(snapshot);
  EXPECT_THAT(std::string(Message(shape)),
              HasSubstr(fmt::format("{} of shape ({}, 32), but the checkpoint has (32, {})", name,
                                    MlpWidth(), MlpWidth())));
}

TEST_P(StageOf, ForTimingAloneHasOtherNumbersOfTheSameSize) {
  const auto mean_square_of_matrices = [](const StageSnapshot& snapshot) {
    double sum = 0, count = 0;
    for (const NamedArray& array : snapshot.parameters) {
      if (array.shape.size() != 2) continue;
      for (const float value : array.values) sum += double{value} * value;
      count += static_cast<double>(array.values.size());
    }
    return sum / count;
  };
  StageOptions options = WholeModel();
  const StageSnapshot of_seed = *(*Stage::Create(options))->Snapshot();
  options.timing_only = true;
  const StageSnapshot any = *(*Stage::Create(options))->Snapshot();
  ASSERT_EQ(any.parameters.size(), of_seed.parameters.size());
  for (size_t i = 0; i < any.parameters.size(); ++i) {
    EXPECT_EQ(any.parameters[i].name, of_seed.parameters[i].name);
    EXPECT_EQ(any.parameters[i].shape, of_seed.parameters[i].shape);
  }
  EXPECT_NE(any.parameters.front().values, of_seed.parameters.front().values);
  EXPECT_NEAR(mean_square_of_matrices(any) / mean_square_of_matrices(of_seed), 1, 0.05);
}

TEST_P(StageOf, RefusesPartsThatAreNoPart) {
  const auto refused = [](auto change) {
    StageOptions options = WholeModel();
    change(options);
    return Stage::Create(options).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](StageOptions& o) { o.model.heads = 5; }));
  EXPECT_TRUE(refused([](StageOptions& o) { o.layers = 3; }));
  EXPECT_TRUE(refused([](StageOptions& o) { o.first_layer = 1, o.layers = 1; }));
  EXPECT_TRUE(refused([](StageOptions& o) { o.layers = 1; }));
  EXPECT_TRUE(refused([](StageOptions& o) { o.first_layer = ~0u, o.first = false; }));
  EXPECT_TRUE(refused([](StageOptions& o) { o.threads = 0; }));
  EXPECT_TRUE(refused([](StageOptions& o) { o.model.vocabulary = 255; }));
  EXPECT_TRUE(refused([](StageOptions& o) { o.train.microbatch_size = 0; }));
}

// Published checkpoints' names, so that other programs read ours.
TEST(Llama, ParametersAreCalledAsInPublishedCheckpoints) {
  StageOptions options;
  options.model.family = ModelFamily::kLlama;
  options.model.layers = options.layers = 1;
  options.model.hidden = 8;
  options.model.heads = 2;
  options.model.kv_heads = 1;
  options.model.intermediate = 12;
  options.model.context = 4;
  options.model.qkv_bias = true;
  options.train.microbatches = 1;
  std::vector<std::string> names;
  const StageSnapshot initial = Stage::Create(options).value()->Snapshot().value();
  for (const NamedArray& array : initial.parameters) {
    names.push_back(fmt::format("{} ({})", array.name, fmt::join(array.shape, ", ")));
  }
  EXPECT_THAT(names, ElementsAre("model.embed_tokens.weight (256, 8)",
                                 "model.layers.0.input_layernorm.weight (8)",
                                 "model.layers.0.self_attn.q_proj.weight (8, 8)",
                                 "model.layers.0.self_attn.q_proj.bias (8)",
                                 "model.layers.0.self_attn.k_proj.weight (4, 8)",
                                 "model.layers.0.self_attn.k_proj.bias (4)",
                                 "model.layers.0.self_attn.v_proj.weight (4, 8)",
                                 "model.layers.0.self_attn.v_proj.bias (4)",
                                 "model.layers.0.self_attn.o_proj.weight (8, 8)",
                                 "model.layers.0.post_attention_layernorm.weight (8)",
                                 "model.layers.0.mlp.gate_proj.weight (12, 8)",
                                 "model.layers.0.mlp.up_proj.weight (12, 8)",
                                 "model.layers.0.mlp.down_proj.weight (8, 12)",
                                 "model.norm.weight (8)", "lm_head.weight (256, 8)"));
}

TEST(Llama, RefusesHeadsThatCannotBe) {
  StageOptions options;
  options.model.family = ModelFamily::kLlama;
  options.model.layers = options.layers = 1;
  options.model.hidden = 24;
  options.model.heads = 4;
  options.model.context = 4;
  options.model.intermediate = 12;
  options.train.microbatches = 1;
  const auto error = [&] { return std::string(Message(Stage::Create(options).status())); };
  for (const uint32_t kv_heads : {0u, 3u}) {
    options.model.kv_heads = kv_heads;
    EXPECT_THAT(error(), HasSubstr("model.kv_heads"));
  }
  options.model.kv_heads = 4;
  EXPECT_EQ(error(), "");
  options.model.heads = options.model.kv_heads = 8;
  EXPECT_THAT(error(), HasSubstr("8 heads of model.hidden 24 have 3 channels each, an odd number"));
}

}  // namespace
}  // namespace longhaul::worker
