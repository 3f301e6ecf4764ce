// A chain of stages in one thread equals the unpipelined loop bit for bit, however the layers are
// split.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/file.h"
#include "run/tokens/token_file.h"
#include "tests/parity/worker/small_model.h"
#include "tests/support/reference_loop.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

constexpr uint64_t kSteps = 4;

RunSpec SmallRun(ModelFamily family) {
  RunSpec spec;
  spec.name = "parity";
  spec.model = testing::SmallModelOf(family);
  spec.train.steps = 10;
  spec.train.microbatches = 4;
  spec.train.microbatch_size = 2;
  spec.train.seed = 7;
  spec.train.optimizer.lr = 3e-3;
  spec.train.optimizer.clip_norm = 0.5;  // Below the norms that come: clipping is on.
  spec.train.schedule.warmup = 2;
  spec.validation.every = 2;
  spec.validation.samples = 5;  // Not a multiple of microbatch_size.
  return spec;
}

class TemporaryTokens {
 public:
  TemporaryTokens() {
    std::string text;
    uint32_t state = 12345;
    while (text.size() < 8000) {  // Words, so that there is something to learn.
      state = state * 1664525 + 1013904223;
      text += fmt::format("{} ", state >> 27);
    }
    text_ = fmt::format("{}longhaul-parity-{}.txt", ::testing::TempDir(), RandomUuid());
    path_ = text_ + ".tokens";
    EXPECT_TRUE(WriteFileAtomic(text_, text).ok());
    EXPECT_TRUE(WriteTokenFile({text_}, "bytes", 0.1, path_).ok());
  }
  ~TemporaryTokens() {
    ::unlink(text_.c_str());
    ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string text_, path_;
};

// What an executor does, without links: forwards of all microbatches, then backwards in order.
class Chain {
 public:
  Chain(const RunSpec& spec, const TokenFile& tokens, uint32_t stages)
      : spec_(spec), tokens_(tokens) {
    const uint32_t layers = spec.model.layers / stages;
    for (uint32_t s = 0; s < stages; ++s) {
      StageOptions options;
      options.model = spec.model;
      options.train = spec.train;
      options.first_layer = s * layers;
      options.layers = layers;
      options.first = s == 0;
      options.last = s + 1 == stages;
      options.recompute = spec.pipeline.recompute;
      options.threads = spec.pipeline.threads_per_stage;
      auto stage = Stage::Create(options);
      EXPECT_TRUE(stage.ok()) << stage.status();
      stages_.push_back(*std::move(stage));
    }
  }

  void TrainStep(uint64_t step, testing::ReferenceRun* run) {
    const uint32_t microbatches = spec_.train.microbatches;
    double sum = 0;
    for (uint32_t m = 0; m < microbatches; ++m) sum += Forward(step, m);
    for (uint32_t m = 0; m < microbatches; ++m) Backward(m);
    double squared_norm = 0;
    for (auto it = stages_.rbegin(); it != stages_.rend(); ++it) {
      squared_norm = (*it)->AddSquaredGradientNorm(squared_norm).value().sum;
    }
    for (const auto& stage : stages_) {
      const Status status =
          stage->OptimizerStep(Step(step), LearningRate(spec_.train, Step(step)),
                               ClipScale(spec_.train.optimizer.clip_norm, squared_norm));
      ASSERT_TRUE(status.ok()) << status;
    }
    run->losses.push_back(sum / microbatches);
    run->squared_gradient_norms.push_back(squared_norm);
  }

  double Validate() {
    const uint32_t context = spec_.model.context, rows = spec_.train.microbatch_size;
    const uint64_t windows = tokens_.ValidationWindows(context);
    const uint64_t batches = std::min<uint64_t>(spec_.validation.samples, windows) / rows;
    const uint64_t samples = batches * rows;
    double sum = 0;
    for (uint64_t batch = 0; batch < batches; ++batch) {
      for (uint32_t row = 0; row < rows; ++row) {
        tokens_.ReadValidationWindow((batch * rows + row) * windows / samples, context,
                                     Row(inputs_, row), Row(targets_, row));
      }
      Stage::Input input{inputs_, {}, targets_};
      std::optional<BoundaryTensor> boundary;
      double loss = 0;
      for (const auto& stage : stages_) {
        if (boundary) input.activation = boundary->view;
        auto output = stage->Evaluate(Slice(), input, &loss);
        EXPECT_TRUE(output.ok()) << output.status();
        boundary = *std::move(output);
      }
      sum += loss;
    }
    return sum / static_cast<double>(batches);
  }

  const std::vector<std::unique_ptr<Stage>>& stages() const { return stages_; }

 private:
  std::span<int32_t> Row(std::vector<int32_t>& batch, uint32_t row) const {
    batch.resize(size_t{spec_.train.microbatch_size} * spec_.model.context);
    return std::span(batch).subspan(size_t{row} * spec_.model.context, spec_.model.context);
  }

  double Forward(uint64_t step, uint32_t m) {
    const uint64_t windows = tokens_.TrainingWindows(spec_.model.context);
    for (uint32_t row = 0; row < spec_.train.microbatch_size; ++row) {
      const uint64_t k =
          ((step - 1) * spec_.train.microbatches + m) * spec_.train.microbatch_size + row;
      tokens_.ReadTrainingWindow(TrainingWindowOf(spec_.data.seed, k, windows), spec_.model.context,
                                 Row(inputs_, row), Row(targets_, row));
    }
    Stage::Input input{inputs_, {}, targets_};
    std::optional<BoundaryTensor> boundary;
    for (const auto& stage : stages_) {
      if (boundary) input.activation = boundary->view;
      auto output = stage->Forward(Microbatch(m), input);
      EXPECT_TRUE(output.ok()) << output.status();
      boundary = *std::move(output);
    }
    EXPECT_FALSE(boundary.has_value());
    return stages_.back()->Loss(Microbatch(m)).value();
  }

  void Backward(uint32_t m) {
    std::optional<BoundaryTensor> boundary;
    for (auto it = stages_.rbegin(); it != stages_.rend(); ++it) {
      auto output = (*it)->Backward(Microbatch(m), boundary ? boundary->view : codec::TensorView{});
      ASSERT_TRUE(output.ok()) << output.status();
      boundary = *std::move(output);
    }
    EXPECT_FALSE(boundary.has_value());
  }

  const RunSpec& spec_;
  const TokenFile& tokens_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<int32_t> inputs_, targets_;
};

struct Case {
  ModelFamily family;
  uint32_t stages;
  ComputeDtype dtype;
  Recompute recompute;
  uint32_t threads = 1;
  // Norms of queries and keys, heads of their own size, scaled rope, weights of experts that do not
  // sum to 1.
  bool as_published = false;
  bool by_bias = false;  // experts are balanced so
};

// The reference trains the whole model at once: it depends neither on the split nor on what a stage
// computes again, so cases share it.
const StatusOr<testing::ReferenceRun>& ReferenceOf(const Case& c, const RunSpec& spec,
                                                   const std::string& token_file) {
  using Key = std::tuple<ModelFamily, ComputeDtype, uint32_t, bool, bool>;
  static std::map<Key, StatusOr<testing::ReferenceRun>> runs;
  const Key key(c.family, c.dtype, c.threads, c.as_published, c.by_bias);
  auto run = runs.find(key);
  if (run == runs.end()) {
    run = runs.emplace(key, testing::RunReference(spec, token_file, kSteps)).first;
  }
  return run->second;
}

class StageParity : public ::testing::TestWithParam<Case> {};

TEST_P(StageParity, EqualsTheReferenceLoopBitForBit) {
  const TemporaryTokens file;
  RunSpec spec = SmallRun(GetParam().family);
  spec.train.dtype = GetParam().dtype;
  spec.pipeline.recompute = GetParam().recompute;
  spec.pipeline.threads_per_stage = GetParam().threads;
  if (GetParam().by_bias) {
    spec.model.balance = Balance::kBias;
    spec.model.balance_rate = 0.02;  // enough for other experts to be chosen
  }
  if (GetParam().as_published) {
    spec.model.qk_norm = true;
    spec.model.head_channels = 24;  // 96 of queries, and hidden is 64
    spec.model.rope_scaling = RopeScaling::kLlama3;
    spec.model.rope_theta = 100;
    spec.model.rope_factor = 4;
    spec.model.rope_original_context = 16;
    spec.model.normalize_router = false;
  }
  const auto& expected = ReferenceOf(GetParam(), spec, file.path());
  ASSERT_TRUE(expected.ok()) << expected.status();

  const auto tokens = TokenFile::Open(file.path(), /*verify=*/true);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  Chain chain(spec, *tokens, GetParam().stages);
  testing::ReferenceRun run;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    chain.TrainStep(step, &run);
    if (step % spec.validation.every == 0) run.validations.push_back({step, chain.Validate()});
  }
  EXPECT_EQ(run.losses, expected->losses);
  // Sums of squares in double, which the reference adds in another order.
  ASSERT_EQ(run.squared_gradient_norms.size(), expected->squared_gradient_norms.size());
  for (size_t i = 0; i < run.squared_gradient_norms.size(); ++i) {
    EXPECT_NEAR(run.squared_gradient_norms[i] / expected->squared_gradient_norms[i], 1, 1e-12);
  }
  ASSERT_EQ(run.validations.size(), expected->validations.size());
  for (size_t i = 0; i < run.validations.size(); ++i) {
    EXPECT_EQ(run.validations[i].loss, expected->validations[i].loss);
  }
  // The comparison says something only where the model learns and clipping acts.
  EXPECT_LT(expected->losses.back(), expected->losses.front() - 0.1);
  EXPECT_GT(expected->squared_gradient_norms.front(), 0.25);
}

std::vector<Case> Cases() {
  constexpr auto kNone = Recompute::kNone, kBlocks = Recompute::kBlocks, kStage = Recompute::kStage;
  std::vector<Case> cases;
  for (const ModelFamily family : {ModelFamily::kGpt, ModelFamily::kLlama, ModelFamily::kMoe}) {
    const std::vector<Case> of_family = {
        {family, 1, ComputeDtype::kFp32, kNone},   {family, 2, ComputeDtype::kFp32, kNone},
        {family, 4, ComputeDtype::kFp32, kNone},   {family, 1, ComputeDtype::kFp32, kStage},
        {family, 4, ComputeDtype::kFp32, kStage},  {family, 1, ComputeDtype::kBf16, kNone},
        {family, 2, ComputeDtype::kBf16, kNone},   {family, 4, ComputeDtype::kBf16, kNone},
        {family, 2, ComputeDtype::kBf16, kStage},  {family, 2, ComputeDtype::kFp32, kNone, 2},
        {family, 1, ComputeDtype::kFp32, kBlocks}, {family, 2, ComputeDtype::kFp32, kBlocks},
        {family, 2, ComputeDtype::kBf16, kBlocks}};
    cases.insert(cases.end(), of_family.begin(), of_family.end());
  }
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kMoe}) {
    for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
      for (const uint32_t stages : {1u, 2u}) {
        cases.push_back({family, stages, dtype, stages == 2 ? kStage : kNone,
                         /*threads=*/1,
                         /*as_published=*/true});
        if (family != ModelFamily::kMoe) continue;
        cases.push_back(cases.back());
        cases.back().as_published = false;
        cases.back().by_bias = true;
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Splits, StageParity, ::testing::ValuesIn(Cases()), [](const auto& test) {
  return fmt::format("{}{}{}stages{}threads{}{}", ToString(test.param.family),
                     test.param.as_published ? "Published"
                     : test.param.by_bias    ? "ByBias"
                                             : "",
                     test.param.stages, test.param.threads,
                     test.param.dtype == ComputeDtype::kBf16 ? "Bf16" : "Fp32",
                     test.param.recompute == Recompute::kNone     ? ""
                     : test.param.recompute == Recompute::kBlocks ? "ByBlocks"
                                                                  : "Recompute");
});

class StageSplit : public ::testing::TestWithParam<ModelFamily> {};

// Parameters and moments after the last step hold every bit of every gradient.
TEST_P(StageSplit, ParametersAndMomentsDoNotDependOnTheSplit) {
  const TemporaryTokens file;
  const RunSpec spec = SmallRun(GetParam());
  const auto tokens = TokenFile::Open(file.path(), /*verify=*/false);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  std::vector<std::vector<NamedArray>> states;
  for (const uint32_t count : {1u, 2u, 4u}) {
    Chain chain(spec, *tokens, count);
    testing::ReferenceRun run;
    for (uint64_t step = 1; step <= 2; ++step) chain.TrainStep(step, &run);
    std::vector<NamedArray> state;
    for (const auto& stage : chain.stages()) {
      StageSnapshot snapshot = stage->Snapshot().value();
      EXPECT_EQ(snapshot.step, 2u);
      for (auto* arrays : {&snapshot.parameters, &snapshot.moments}) {
        for (NamedArray& array : *arrays) state.push_back(std::move(array));
      }
    }
    std::sort(state.begin(), state.end(),
              [](const NamedArray& a, const NamedArray& b) { return a.name < b.name; });
    states.push_back(std::move(state));
  }
  for (size_t i = 1; i < states.size(); ++i) {
    ASSERT_EQ(states[i].size(), states[0].size());
    for (size_t a = 0; a < states[0].size(); ++a) {
      EXPECT_EQ(states[i][a].name, states[0][a].name);
      EXPECT_EQ(states[i][a].shape, states[0][a].shape);
      EXPECT_TRUE(states[i][a].values == states[0][a].values) << states[0][a].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StageSplit,
                         ::testing::Values(ModelFamily::kGpt, ModelFamily::kLlama,
                                           ModelFamily::kMoe),
                         [](const auto& test) { return std::string(ToString(test.param)); });

}  // namespace
}  // namespace longhaul::worker
