// A mixture of experts against the same in double, written out token by token.
#include "worker/stage/model/moe.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "run/model/family.h"
#include "worker/stage/model/dispatch.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using NamedValues = std::map<std::string, std::vector<double>>;

constexpr int kSequences = 2, kLength = 7, kChannels = 6;
const std::string kPrefix = "model.layers.0.mlp.";

StageOptions SmallMixture() {
  StageOptions options;
  ModelSpec& model = options.model;
  model.family = ModelFamily::kMoe;
  model.layers = 3;
  model.hidden = kChannels;
  model.heads = model.kv_heads = 1;
  model.context = kLength;
  model.experts = 5;
  model.experts_per_token = 2;
  model.expert_intermediate = 4;
  model.shared_intermediate = 3;
  model.balance_loss = 0.5;
  options.train.microbatches = 4;
  options.train.microbatch_size = kSequences;
  return options;
}

LayerMaker MakerOf(const StageOptions& options) {
  std::vector<model::PlacedParameter> wanted =
      model::ParametersOf(options.model, /*vocabulary_rows=*/1, {.first_layer = 0, .layers = 1});
  std::erase_if(wanted, [](const auto& one) { return !one.Name().starts_with(kPrefix); });
  return {options.model,    std::move(wanted), {FirstValues::Kind::kSeeded, 1},
          at::kCPU,         at::kFloat,        0,
          /*group=*/nullptr};
}

// Numbers up to `largest`, which `salt` chooses.
std::vector<double> Noise(size_t count, double largest, int salt) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(largest * std::sin(1.7 * static_cast<double>(i) + 2.9 * salt));
  }
  return values;
}

at::Tensor ToTensor(const std::vector<double>& values, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<double*>(values.data()), sizes, at::kDouble).to(at::kFloat);
}

// What a mixture computes of tokens, in double.
class InDouble {
 public:
  explicit InDouble(const StageOptions& options) : options_(options), model_(options.model) {}

  // The sum over all outputs times `direction`, and this block's share in the auxiliary loss of a
  // step.
  double Objective(const NamedValues& values, const std::vector<double>& x,
                   const std::vector<double>& direction) const {
    const size_t tokens = x.size() / kChannels;
    std::vector<double> counts(model_.experts), means(model_.experts);
    double sum = 0;
    for (size_t token = 0; token < tokens; ++token) {
      const std::vector<double> input(&x[token * kChannels], &x[token * kChannels] + kChannels);
      const std::vector<double> output = OfToken(values, input, &counts, &means);
      for (int i = 0; i < kChannels; ++i) sum += output[i] * direction[token * kChannels + i];
    }
    if (model_.balance == Balance::kNone) return sum;
    double balance = 0;
    const auto all = static_cast<double>(tokens);
    for (uint32_t e = 0; e < model_.experts; ++e) balance += counts[e] / all * means[e] / all;
    return sum + model_.balance_loss * model_.experts * balance / model_.layers /
                     options_.train.microbatches;
  }

  std::vector<double> OfToken(const NamedValues& values, const std::vector<double>& x,
                              std::vector<double>* counts, std::vector<double>* means) const {
    std::vector<double> scores = Product(values.at("gate"), x);
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score);
    for (double& score : scores) score /= sum;
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(model_.experts_per_token);
    double chosen = 0;
    for (const size_t e : order) chosen += scores[e];
    std::vector<double> output(kChannels);
    for (const size_t e : order) {
      (*counts)[e] += 1;
      const std::vector<double> given = Mlp(values, "experts." + std::to_string(e) + ".", x);
      const double weight = scores[e] / (model_.normalize_router ? chosen : 1);
      for (int i = 0; i < kChannels; ++i) output[i] += weight * given[i];
    }
    for (size_t e = 0; e < scores.size(); ++e) (*means)[e] += scores[e];
    if (model_.shared_intermediate == 0) return output;
    const std::vector<double> given = Mlp(values, "shared_expert.", x);
    const double open = 1 / (1 + std::exp(-Product(values.at("shared_expert_gate"), x)[0]));
    for (int i = 0; i < kChannels; ++i) output[i] += open * given[i];
    return output;
  }

 private:
  static std::vector<double> Product(const std::vector<double>& matrix,
                                     const std::vector<double>& x) {
    std::vector<double> y(matrix.size() / x.size());
    for (size_t row = 0; row < y.size(); ++row) {
      for (size_t i = 0; i < x.size(); ++i) y[row] += matrix[row * x.size() + i] * x[i];
    }
    return y;
  }
  static std::vector<double> Mlp(const NamedValues& values, const std::string& name,
                                 const std::vector<double>& x) {
    std::vector<double> gate = Product(values.at(name + "gate_proj"), x);
    const std::vector<double> up = Product(values.at(name + "up_proj"), x);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    return Product(values.at(name + "down_proj"), gate);
  }

  const StageOptions& options_;
  const ModelSpec& model_;
};

// By a step to either side.
std::vector<double> Derivatives(std::vector<double>& at, const std::function<double()>& objective) {
  constexpr double kStep = 1e-6;
  std::vector<double> derivatives;
  for (double& value : at) {
    const double here = value;
    value = here + kStep;
    const double above = objective();
    value = here - kStep;
    derivatives.push_back((above - objective()) / (2 * kStep));
    value = here;
  }
  return derivatives;
}

void ExpectClose(const at::Tensor& actual, const std::vector<double>& expected,
                 const std::string& name) {
  ASSERT_TRUE(actual.defined()) << name;
  const at::Tensor dense = actual.contiguous();
  ASSERT_EQ(static_cast<size_t>(dense.numel()), expected.size()) << name;
  double largest = 0, apart = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    apart = std::max(apart, std::abs(dense.const_data_ptr<float>()[i] - expected[i]));
  }
  EXPECT_GT(largest, 1e-4) << name << " says nothing";
  EXPECT_LE(apart, 1e-5 * largest) << name;
}

struct MixtureExample {
  explicit MixtureExample(const StageOptions& options)
      : maker(MakerOf(options)), mixture(maker, options, kPrefix, /*group=*/nullptr) {
    int salt = 0;
    for (const Parameter& parameter : maker.parameters()) SetValue(parameter, ++salt);
  }
  void SetValue(const Parameter& parameter, int salt) {
    const std::string name =
        parameter.name.substr(kPrefix.size(), parameter.name.size() - kPrefix.size() - 7);
    values[name] = Noise(static_cast<size_t>(parameter.value.numel()), 0.9, salt);
    parameter.value.detach().copy_(ToTensor(values[name], parameter.value.sizes()));
  }
  const Parameter& Find(const std::string& name) const {
    return *std::ranges::find(maker.parameters(), kPrefix + name + ".weight", &Parameter::name);
  }

  LayerMaker maker;
  Mixture mixture;
  NamedValues values;
  std::vector<double> x = Noise(kSequences * kLength * kChannels, 1.3, 40);
  std::vector<double> direction = Noise(kSequences * kLength * kChannels, 0.7, 50);
};

struct MixtureVariant {
  const char* name;
  bool normalizes;
  uint32_t shared;
  Balance balance;
};
class MixtureOf : public ::testing::TestWithParam<MixtureVariant> {};
INSTANTIATE_TEST_SUITE_P(Variants, MixtureOf,
                         ::testing::Values(MixtureVariant{"Qwen3", true, 0, Balance::kLoss},
                                           MixtureVariant{"Qwen2", false, 3, Balance::kLoss},
                                           MixtureVariant{"Unbalanced", true, 3, Balance::kNone},
                                           MixtureVariant{"Raw", false, 0, Balance::kNone}),
                         [](const auto& test) { return test.param.name; });

TEST_P(MixtureOf, HasTheValuesAndGradientsOfDouble) {
  StageOptions options = SmallMixture();
  options.model.normalize_router = GetParam().normalizes;
  options.model.shared_intermediate = GetParam().shared;
  options.model.balance = GetParam().balance;
  MixtureExample example(options);
  const at::Tensor x =
      ToTensor(example.x, {kSequences, kLength, kChannels}).set_requires_grad(true);
  const at::Tensor y = example.mixture(x);
  y.backward(ToTensor(example.direction, y.sizes()));

  const InDouble reference(options);
  std::vector<double> counts(options.model.experts), means(options.model.experts), outputs;
  for (int token = 0; token < kSequences * kLength; ++token) {
    const double* const begin = &example.x[token * kChannels];
    const std::vector<double> one =
        reference.OfToken(example.values, {begin, begin + kChannels}, &counts, &means);
    outputs.insert(outputs.end(), one.begin(), one.end());
  }
  // All experts take part, and not all equally.
  EXPECT_GT(*std::ranges::min_element(counts), 0);
  EXPECT_LT(*std::ranges::min_element(counts), *std::ranges::max_element(counts));
  ExpectClose(y.detach(), outputs, "output");

  const auto objective = [&] {
    return reference.Objective(example.values, example.x, example.direction);
  };
  ExpectClose(x.grad(), Derivatives(example.x, objective), "input");
  for (auto& [name, values] : example.values) {
    ExpectClose(example.Find(name).value.grad(), Derivatives(values, objective), name);
  }
}

TEST(Mixture, RepeatsItselfToTheBit) {
  const StageOptions options = SmallMixture();
  std::vector<std::vector<at::Tensor>> runs(2);
  for (std::vector<at::Tensor>& run : runs) {
    MixtureExample example(options);
    const at::Tensor x =
        ToTensor(example.x, {kSequences, kLength, kChannels}).set_requires_grad(true);
    const at::Tensor y = example.mixture(x);
    y.backward(ToTensor(example.direction, y.sizes()));
    run = {y.detach(), x.grad()};
    for (const Parameter& parameter : example.maker.parameters()) {
      run.push_back(parameter.value.grad());
    }
  }
  for (size_t i = 0; i < runs[0].size(); ++i) EXPECT_TRUE(runs[0][i].equal(runs[1][i])) << i;
}

// An optimizer finds zeros, whoever was chosen.
TEST(Mixture, AnExpertWithoutTokensHasAGradientOfZeros) {
  StageOptions options = SmallMixture();
  options.model.experts = 16;
  options.model.balance = Balance::kNone;
  MixtureExample example(options);
  // One direction of the input decides, and all tokens have it.
  const at::Tensor router = example.Find("gate").value.detach();
  router.zero_();
  for (int64_t expert = 0; expert < 16; ++expert) router[expert][0] = -static_cast<double>(expert);
  for (size_t i = 0; i < example.x.size(); i += kChannels) example.x[i] = 1;
  const at::Tensor x =
      ToTensor(example.x, {kSequences, kLength, kChannels}).set_requires_grad(true);
  example.mixture(x).sum().backward();
  for (int expert = 0; expert < 16; ++expert) {
    const at::Tensor gradient =
        example.Find("experts." + std::to_string(expert) + ".up_proj").value.grad();
    ASSERT_TRUE(gradient.defined());
    EXPECT_EQ(gradient.count_nonzero().item<int64_t>() > 0, expert < 2) << expert;
  }
}

// All of a model with biases that balance its experts.
StageOptions Biased() {
  StageOptions options = SmallMixture();
  options.model.layers = options.layers = 2;
  options.model.balance = Balance::kBias;
  options.model.balance_rate = 0.25;
  options.train.steps = 10;
  options.train.microbatches = 2;
  return options;
}

std::unique_ptr<Stage> MakeStage(const StageOptions& options) {
  auto stage = Stage::Create(options);
  EXPECT_TRUE(stage.ok()) << stage.status();
  return *std::move(stage);
}

// Two microbatches; no update.
void RunPasses(Stage& stage, int salt) {
  for (uint32_t m = 0; m < 2; ++m) {
    std::vector<int32_t> ids;
    for (int i = 0; i < kSequences * kLength; ++i) {
      ids.push_back((i * i * 5 + 7 * salt + static_cast<int>(m)) % 256);
    }
    double loss = 0;
    ASSERT_TRUE(stage.Evaluate(Slice(), {ids, {}, ids}, &loss).ok());  // counts nowhere
    ASSERT_TRUE(stage.Forward(Microbatch(m), {ids, {}, ids}).ok());
    ASSERT_TRUE(stage.Backward(Microbatch(m), {}).ok());
  }
}

std::vector<float> BiasOf(const Stage& stage, int block) {
  const StageSnapshot snapshot = stage.Snapshot().value();
  const auto found =
      std::ranges::find(snapshot.parameters, fmt::format("model.layers.{}.mlp.gate.balance", block),
                        &NamedArray::name);
  EXPECT_NE(found, snapshot.parameters.end());
  return found->values;
}

TEST(BalanceByBias, MovesTowardsExpertsThatGotFewTokens) {
  StageOptions options = Biased();
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks, Recompute::kStage}) {
    options.recompute = recompute;
    const auto stage = MakeStage(options);
    RunPasses(*stage, 1);
    ASSERT_EQ(stage->OptimizerStep(Step(1), 1e-3, 1), absl::OkStatus());
    const std::vector<std::vector<int64_t>> tokens = stage->TokensOfExperts();
    ASSERT_EQ(tokens.size(), 2u);
    for (int block = 0; block < 2; ++block) {
      // Two slots of each token of two microbatches, each once.
      const int64_t slots = std::accumulate(tokens[block].begin(), tokens[block].end(), int64_t{0});
      EXPECT_EQ(slots, 2 * 2 * kSequences * kLength) << ToString(recompute);
      const std::vector<float> bias = BiasOf(*stage, block);
      ASSERT_EQ(bias.size(), 5u);
      for (size_t expert = 0; expert < 5; ++expert) {
        EXPECT_EQ(bias[expert], 5 * tokens[block][expert] > slots ? -0.25f : 0.25f);
      }
      EXPECT_LT(*std::ranges::min_element(bias), *std::ranges::max_element(bias));
    }
  }
}

TEST(BalanceByBias, StaysWhereAStepIsSkippedOrDropped) {
  const auto stage = MakeStage(Biased());
  RunPasses(*stage, 1);
  ASSERT_EQ(stage->SkipStep(Step(1)), absl::OkStatus());
  EXPECT_THAT(BiasOf(*stage, 1), ::testing::Each(0.0f));
  RunPasses(*stage, 2);
  ASSERT_EQ(stage->DropStep(), absl::OkStatus());
  const auto other = MakeStage(Biased());
  ASSERT_EQ(other->Restore(stage->Snapshot().value()), absl::OkStatus());
  for (Stage* one : {stage.get(), other.get()}) {
    RunPasses(*one, 3);
    ASSERT_EQ(one->OptimizerStep(Step(2), 1e-3, 1), absl::OkStatus());
  }
  EXPECT_EQ(stage->TokensOfExperts(), other->TokensOfExperts());
  EXPECT_EQ(BiasOf(*stage, 1), BiasOf(*other, 1));
}

TEST(BalanceByBias, GoesOnFromASnapshotToTheBit) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    StageOptions options = Biased();
    options.train.optimizer.kind = kind;
    const auto stage = MakeStage(options);
    const auto train = [](Stage& one, uint64_t step) {
      RunPasses(one, static_cast<int>(step));
      ASSERT_EQ(one.OptimizerStep(Step(step), 1e-2, 1), absl::OkStatus());
    };
    for (uint64_t step = 1; step <= 2; ++step) train(*stage, step);
    options.train.seed = 99;
    const auto resumed = MakeStage(options);
    RunPasses(*resumed, 8);  // half done
    ASSERT_EQ(resumed->Restore(stage->Snapshot().value()), absl::OkStatus());
    for (uint64_t step = 3; step <= 5; ++step) {
      train(*stage, step);
      train(*resumed, step);
    }
    const StageSnapshot expected = stage->Snapshot().value(), actual = resumed->Snapshot().value();
    ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
    for (size_t i = 0; i < expected.parameters.size(); ++i) {
      EXPECT_EQ(actual.parameters[i].values, expected.parameters[i].values)
          << expected.parameters[i].name;
    }
    for (const NamedArray& moment : expected.moments) {
      EXPECT_EQ(moment.name.find("balance"), std::string::npos) << moment.name;
    }
  }
}

TEST(Dispatch, SortsSlotsByExpertAndThenByToken) {
  // Experts of four tokens.
  const at::Tensor chosen = at::tensor({2, 0, 0, 1, 2, 1, 0, 2}, at::kLong).view({4, 2});
  const Dispatch dispatch(chosen, /*experts=*/4, /*group=*/nullptr);
  EXPECT_THAT(dispatch.counts(), ElementsAre(3, 2, 3, 0));
  EXPECT_EQ(dispatch.held(), dispatch.counts());
  const at::Tensor rows = at::tensor({10.0f, 11.0f, 12.0f, 13.0f}).view({4, 1});
  const at::Tensor sent = dispatch.Send(rows);
  EXPECT_TRUE(
      sent.flatten().equal(at::tensor({10.0f, 11.0f, 13.0f, 11.0f, 12.0f, 10.0f, 12.0f, 13.0f})));
  // Experts that give their number times a hundred, and the token.
  const at::Tensor given =
      sent + at::tensor({0.0f, 0.0f, 0.0f, 100.0f, 100.0f, 200.0f, 200.0f, 200.0f}).view({8, 1});
  const at::Tensor weights =
      at::tensor({1.0f, 0.0f, 1.0f, 0.0f, 0.5f, 0.5f, 0.0f, 2.0f}).view({4, 2});
  EXPECT_TRUE(dispatch.Combine(given, weights)
                  .flatten()
                  .equal(at::tensor({210.0f, 11.0f, 162.0f, 426.0f})));
}

}  // namespace
}  // namespace longhaul::worker
