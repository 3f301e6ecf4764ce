#include "worker/stage/model/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "run/model/lora.h"
#include "worker/stage/model/init.h"
#include "worker/stage/model/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

std::vector<int64_t> ChannelIds(int64_t count, int64_t first = 0) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

at::Tensor RandomNumber(int64_t number) {
  return at::scalar_tensor(number, at::kLong);
}

// 1 where a number is kept.
at::Tensor MaskOf(Dropout& dropout, int64_t random, const at::Tensor& channels, int64_t rows) {
  const Dropout::Pass pass(&dropout, RandomNumber(random), rows);
  at::Tensor mask = at::ones({rows, channels.numel()});
  dropout.current()->Drop(channels, mask);
  return mask;
}

TEST(Dropout, DropsTheShareAndKeepsTheExpectation) {
  constexpr int64_t kRows = 512, kChannels = 300;
  const at::Tensor channels = Dropout::ChannelsOf("a", ChannelIds(kChannels));
  for (const double share : {0.05, 0.5, 0.9}) {
    Dropout dropout(share);
    at::Tensor sum = at::zeros_like(at::ones({kRows, kChannels}));
    for (uint32_t slice = 0; slice < 4; ++slice) {
      const int64_t random = Dropout::RandomOf(7, slice);
      const Dropout::Pass pass(&dropout, RandomNumber(random), kRows);
      at::Tensor values = at::ones({kRows, kChannels});
      dropout.current()->Drop(channels, values);
      sum += values * dropout.current()->factor;
    }
    // 600,000 numbers are drawn.
    EXPECT_NEAR(sum.mean().item<double>() / 4, 1, 0.02);
    // No row and no channel is dropped much more than others: five standard deviations.
    const double deviation = std::sqrt(share / (1 - share));
    for (const int64_t along : {0, 1}) {
      const double numbers = 4.0 * static_cast<double>(along == 0 ? kRows : kChannels);
      EXPECT_LT((sum.mean(along) / 4 - 1).abs().max().item<double>(),
                5 * deviation / std::sqrt(numbers));
    }
  }
}

TEST(Dropout, NeighboursAreIndependent) {
  Dropout dropout(0.5);
  const at::Tensor channels = Dropout::ChannelsOf("a", ChannelIds(256));
  const at::Tensor signs = MaskOf(dropout, 3, channels, 256) * 2 - 1;
  const auto correlation = [](const at::Tensor& a, const at::Tensor& b) {
    return std::abs((a * b).mean().item<double>());
  };
  EXPECT_LT(correlation(signs.narrow(0, 0, 255), signs.narrow(0, 1, 255)), 0.02);
  EXPECT_LT(correlation(signs.narrow(1, 0, 255), signs.narrow(1, 1, 255)), 0.02);
  // Four corners of rectangles: the product of a row's and a column's sign would be 1 everywhere.
  EXPECT_LT(
      correlation(
          signs.narrow(0, 0, 255).narrow(1, 0, 255) * signs.narrow(0, 1, 255).narrow(1, 1, 255),
          signs.narrow(0, 0, 255).narrow(1, 1, 255) * signs.narrow(0, 1, 255).narrow(1, 0, 255)),
      0.02);
  // Other names, microbatches and slices drop others.
  const at::Tensor other = Dropout::ChannelsOf("b", ChannelIds(256));
  EXPECT_LT(correlation(signs, MaskOf(dropout, 3, other, 256) * 2 - 1), 0.02);
  EXPECT_LT(correlation(signs, MaskOf(dropout, 4, channels, 256) * 2 - 1), 0.02);
  std::set<int64_t> randoms;
  for (uint64_t microbatch = 0; microbatch < 10; ++microbatch) {
    for (uint32_t slice = 0; slice < 10; ++slice) {
      randoms.insert(Dropout::RandomOf(microbatch, slice));
    }
  }
  EXPECT_EQ(randoms.size(), 100u);
  EXPECT_GE(*randoms.begin(), 0);
}

// Golden bits: a resume, another device and another version of longhaul drop the same numbers.
TEST(Dropout, IsAFunctionOfItsArgumentsAlone) {
  Dropout dropout(0.25);
  const at::Tensor whole = MaskOf(dropout, 5, Dropout::ChannelsOf("name", ChannelIds(1000)), 200);
  EXPECT_TRUE(whole.equal(MaskOf(dropout, 5, Dropout::ChannelsOf("name", ChannelIds(1000)), 200)));
  // A rank's channels, and fewer rows.
  EXPECT_TRUE(whole.narrow(1, 300, 50)
                  .narrow(0, 0, 7)
                  .equal(MaskOf(dropout, 5, Dropout::ChannelsOf("name", ChannelIds(50, 300)), 7)));
  std::string bits;
  for (int64_t i = 0; i < 64; ++i) bits += whole[i / 8][i % 8].item<float>() == 0 ? '0' : '1';
  EXPECT_EQ(bits, "1010001011101111111101110011011011110010111110111111111110010111");
}

TEST(Dropout, NothingIsDroppedOutsideOfAPassAndInValidation) {
  Dropout dropout(0.5);
  EXPECT_EQ(dropout.current(), nullptr);
  const at::Tensor channels = Dropout::ChannelsOf("a", ChannelIds(8));
  EXPECT_EQ(MaskOf(dropout, Dropout::kNothing, channels, 4).min().item<float>(), 1);
  {
    const Dropout::Pass pass(&dropout, RandomNumber(Dropout::kNothing), 4);
    EXPECT_EQ(dropout.current()->factor.item<float>(), 1);
  }
  EXPECT_EQ(dropout.current(), nullptr);
  const Dropout::Pass none(&dropout, {}, 4), without(nullptr, RandomNumber(1), 4);
  EXPECT_EQ(dropout.current(), nullptr);
}

at::Tensor Leaf(at::IntArrayRef sizes, uint64_t seed) {
  at::Tensor values = at::empty(sizes);
  FillNormal(seed, "values", 1,
             std::span(values.data_ptr<float>(), static_cast<size_t>(values.numel())));
  return values.set_requires_grad(true);
}

// PEFT's: W x + scale B (A dropout(x)), and what autograd makes of that.
TEST(Dropout, AnAdaptedProductAndItsGradientsAreThoseOfTheFormula) {
  constexpr int64_t kRows = 6, kInputs = 20, kOutputs = 10, kRank = 3;
  constexpr double kScale = 1.5;
  Dropout dropout(0.4);
  Linear linear;
  linear.weight = Leaf({kOutputs, kInputs}, 1).set_requires_grad(false);
  linear.bias = Leaf({kOutputs}, 2).set_requires_grad(false);
  linear.cast_weight = linear.weight;
  linear.cast_bias = linear.bias;
  linear.adapter = {.a = Leaf({kRank, kInputs}, 3),
                    .b = Leaf({kOutputs, kRank}, 4),
                    .scale = kScale,
                    .dropout = &dropout,
                    .channels = Dropout::ChannelsOf("a", ChannelIds(kInputs))};
  linear.adapter.cast_a = linear.adapter.a.detach();
  linear.adapter.cast_b = linear.adapter.b.detach();
  const at::Tensor x = Leaf({2, kRows / 2, kInputs}, 5),
                   weights = Leaf({2, kRows / 2, kOutputs}, 6);
  at::Tensor output;
  {
    const Dropout::Pass pass(&dropout, RandomNumber(11), kRows);
    output = linear(x);
  }
  (output * weights.detach()).sum().backward();

  const at::Tensor mask =
      MaskOf(dropout, 11, linear.adapter.channels, kRows).view({2, kRows / 2, kInputs});
  EXPECT_LT(mask.mean().item<double>(), 0.9);
  const at::Tensor a = linear.adapter.a.detach().clone().set_requires_grad(true);
  const at::Tensor b = linear.adapter.b.detach().clone().set_requires_grad(true);
  const at::Tensor input = x.detach().clone().set_requires_grad(true);
  const at::Tensor expected = at::linear(input, linear.weight, linear.bias) +
                              at::linear(at::linear(input * mask / (1 - 0.4), a), b) * kScale;
  (expected * weights.detach()).sum().backward();
  const auto apart = [](const at::Tensor& got, const at::Tensor& wanted) {
    return (got - wanted).abs().max().item<double>() / wanted.abs().max().item<double>();
  };
  EXPECT_LT(apart(output.detach(), expected.detach()), 1e-5);
  EXPECT_LT(apart(x.grad(), input.grad()), 1e-5);
  EXPECT_LT(apart(linear.adapter.a.grad(), a.grad()), 1e-5);
  EXPECT_LT(apart(linear.adapter.b.grad(), b.grad()), 1e-5);
}

// Stages with adapters at every matrix of their blocks.
class DropoutInStage : public ::testing::TestWithParam<ModelFamily> {
 protected:
  static StageOptions Options(double dropout = 0.3) {
    StageOptions options;
    options.model.family = GetParam();
    options.model.layers = options.layers = 2;
    options.model.hidden = 16;
    options.model.heads = 2;
    options.model.context = 8;
    if (GetParam() != ModelFamily::kGpt) options.model.kv_heads = 2;
    options.model.intermediate = 24;
    options.model.experts = 4;
    options.model.experts_per_token = 2;
    options.model.expert_intermediate = 12;
    options.model.lora = LoraSpec{.rank = 2, .alpha = 8, .dropout = dropout, .targets = {}};
    options.model.lora->targets = model::TargetsOf(options.model);
    options.train.steps = 10;
    options.train.microbatches = 2;
    options.train.microbatch_size = 2;
    return options;
  }
  static std::unique_ptr<Stage> Made(const StageOptions& options) {
    auto stage = Stage::Create(options);
    EXPECT_TRUE(stage.ok()) << stage.status();
    return *std::move(stage);
  }
  static Stage::Input InputOf(const std::vector<int32_t>& ids, uint64_t random) {
    return {.tokens = ids, .activation = {}, .targets = ids, .random = random};
  }
  static std::vector<int32_t> Ids() {
    std::vector<int32_t> ids(16);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 31 % 200);
    return ids;
  }
  // The losses of a step. `salt`: that of its random numbers.
  static std::vector<double> Train(Stage& stage, uint64_t step, uint64_t salt = 0) {
    std::vector<double> losses;
    const std::vector<int32_t> ids = Ids();
    for (uint32_t m = 0; m < 2; ++m) {
      EXPECT_TRUE(stage.Forward(Microbatch(m), InputOf(ids, 10 * step + m + salt)).ok());
      losses.push_back(*stage.Loss(Microbatch(m)));
    }
    for (uint32_t m = 0; m < 2; ++m) EXPECT_TRUE(stage.Backward(Microbatch(m), {}).ok());
    EXPECT_TRUE(stage.AddSquaredGradientNorm(0).ok());
    const Status status = stage.OptimizerStep(Step(step), 1e-2, 1);
    EXPECT_TRUE(status.ok()) << status;
    return losses;
  }
  static double Evaluated(Stage& stage) {
    const std::vector<int32_t> ids = Ids();
    double loss = 0;
    EXPECT_TRUE(stage.Evaluate(Slice(), InputOf(ids, 5), &loss).ok());
    return loss;
  }
};
INSTANTIATE_TEST_SUITE_P(Families, DropoutInStage,
                         ::testing::Values(ModelFamily::kGpt, ModelFamily::kLlama,
                                           ModelFamily::kMoe),
                         [](const auto& test) { return std::string(ToString(test.param)); });

TEST_P(DropoutInStage, DropsInTrainingAloneAndAnewInEachMicrobatch) {
  const auto dropping = Made(Options()), plain = Made(Options(0));
  // The first step begins with B of zeros.
  Train(*dropping, 1);
  ASSERT_TRUE(plain->Restore(*dropping->Snapshot()).ok());
  EXPECT_EQ(Evaluated(*dropping), Evaluated(*plain));
  const StageSnapshot begun = *dropping->Snapshot();
  const std::vector<double> losses = Train(*dropping, 2), without = Train(*plain, 2);
  EXPECT_EQ(without[0], without[1]);
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[0], without[0]);
  ASSERT_TRUE(dropping->Restore(begun).ok());
  EXPECT_NE(Train(*dropping, 2, /*salt=*/100), losses);
}

TEST_P(DropoutInStage, RecomputedPassesAndAResumeDropTheSame) {
  for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
    StageOptions options = Options();
    options.train.dtype = dtype;
    const auto kept = Made(options);
    std::vector<double> losses;
    StageSnapshot middle;
    for (uint64_t step = 1; step <= 4; ++step) {
      losses = Train(*kept, step);
      if (step == 2) middle = *kept->Snapshot();
    }
    const StageSnapshot end = *kept->Snapshot();
    const auto expect_end = [&](const Stage& stage) {
      const StageSnapshot got = *stage.Snapshot();
      for (size_t i = 0; i < end.parameters.size(); ++i) {
        EXPECT_EQ(got.parameters[i].values, end.parameters[i].values) << end.parameters[i].name;
      }
    };
    for (const Recompute recompute : {Recompute::kBlocks, Recompute::kStage}) {
      options.recompute = recompute;
      const auto again = Made(options);
      for (uint64_t step = 1; step <= 3; ++step) Train(*again, step);
      EXPECT_EQ(Train(*again, 4), losses);
      expect_end(*again);
    }
    const auto resumed = Made(options);
    ASSERT_TRUE(resumed->Restore(middle).ok());
    Train(*resumed, 3);
    EXPECT_EQ(Train(*resumed, 4), losses);
    expect_end(*resumed);
  }
}

TEST_P(DropoutInStage, StagesDropWhatTheWholeModelDrops) {
  StageOptions first = Options(), second = Options();
  first.layers = second.layers = second.first_layer = 1;
  first.last = second.first = false;
  const auto whole = Made(Options()), front = Made(first), back = Made(second);
  const std::vector<int32_t> ids = Ids();
  for (uint64_t step = 1; step <= 3; ++step) {
    std::vector<double> losses;
    for (uint32_t m = 0; m < 2; ++m) {
      Stage::Input input = InputOf(ids, 10 * step + m);
      const auto boundary = front->Forward(Microbatch(m), input);
      ASSERT_TRUE(boundary.ok()) << boundary.status();
      input.activation = (*boundary)->view;
      ASSERT_TRUE(back->Forward(Microbatch(m), input).ok());
      losses.push_back(*back->Loss(Microbatch(m)));
    }
    for (uint32_t m = 0; m < 2; ++m) {
      const auto gradient = back->Backward(Microbatch(m), {});
      ASSERT_TRUE(gradient.ok());
      ASSERT_TRUE(front->Backward(Microbatch(m), (*gradient)->view).ok());
    }
    for (Stage* const stage : {front.get(), back.get()}) {
      ASSERT_TRUE(stage->OptimizerStep(Step(step), 1e-2, 1).ok());
    }
    EXPECT_EQ(losses, Train(*whole, step)) << step;
  }
}

}  // namespace
}  // namespace longhaul::worker
