// LoRA: a published model's parameters stay as they are, and adapters beside them learn what the
// chain rule says.
#include "run/model/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "run/published/weights.h"
#include "worker/stage/model/init.h"
#include "worker/stage/model/model.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

class Lora : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr uint32_t kRows = 2, kTokens = 16, kMicrobatches = 2;

  Lora() : weights_(published::ReadFolder(Folder())) {}
  void SetUp() override { ASSERT_TRUE(weights_.ok()) << weights_.status(); }

  static std::string Folder() {
    return std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/models/" + GetParam();
  }
  // All of the model, with adapters at every matrix of its blocks.
  StageOptions Adapted() const {
    StageOptions options;
    options.model = published::ParseConfig(weights_->config_json, "config.json")->model;
    options.vocabulary = *options.model.vocabulary;
    options.model.context = kTokens;
    options.model.lora = LoraSpec{.rank = 3, .alpha = 6, .targets = {}};
    options.model.lora->targets = model::TargetsOf(options.model);
    options.layers = options.model.layers;
    options.train.steps = 10;
    options.train.microbatches = kMicrobatches;
    options.train.microbatch_size = kRows;
    options.loads = true;
    return options;
  }
  static StageOptions First(StageOptions options) {
    options.layers = 1;
    options.last = false;
    return options;
  }
  static StageOptions Second(StageOptions options) {
    options.first_layer = 1;
    options.layers = options.model.layers - 1;
    options.first = false;
    return options;
  }
  ReadParameter Read(const StageOptions& options) const {
    return [this, model = options.model](const model::PlacedParameter& parameter,
                                         std::span<float> values) {
      EXPECT_FALSE(parameter.parameter.adapter) << parameter.Name();
      LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                          published::TensorOf(*weights_, model, parameter));
      LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                          published::ReadTensor(Folder(), *tensor));
      published::Decode(*tensor, bytes, parameter.parameter, values);
      return absl::OkStatus();
    };
  }
  std::unique_ptr<Stage> Loaded(const StageOptions& options) const {
    auto stage = Stage::Create(options);
    EXPECT_TRUE(stage.ok()) << stage.status();
    const Status loaded = (*stage)->Load(Read(options));
    EXPECT_TRUE(loaded.ok()) << loaded;
    return *std::move(stage);
  }
  static std::vector<int32_t> Ids(uint64_t salt) {
    std::vector<int32_t> ids(kRows * kTokens);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 31 + salt * 7) % 90);
    return ids;
  }
  // A step over stages one behind another: the mean loss, and the global norm.
  static std::pair<double, double> Train(const std::vector<Stage*>& stages, uint64_t step) {
    double loss = 0;
    for (uint32_t m = 0; m < kMicrobatches; ++m) {
      const std::vector<int32_t> ids = Ids(step * 10 + m), targets = Ids(step * 10 + m + 5);
      std::optional<BoundaryTensor> boundary;
      for (Stage* const stage : stages) {
        const codec::TensorView in = boundary ? boundary->view : codec::TensorView{};
        boundary = *stage->Forward(Microbatch(m), {ids, in, targets});
      }
      loss += *stages.back()->Loss(Microbatch(m));
      boundary.reset();
      for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
        const codec::TensorView in = boundary ? boundary->view : codec::TensorView{};
        boundary = *(*stage)->Backward(Microbatch(m), in);
      }
    }
    double norm = 0;
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      norm = (*stage)->AddSquaredGradientNorm(norm)->sum;
    }
    for (Stage* const stage : stages) {
      const Status status = stage->OptimizerStep(Step(step), 1e-2, ClipScale(1, norm));
      EXPECT_TRUE(status.ok()) << status;
    }
    return {loss / kMicrobatches, norm};
  }
  static double LossOf(Stage& stage) {
    const std::vector<int32_t> ids = Ids(1), targets = Ids(2);
    double loss = 0;
    EXPECT_TRUE(stage.Evaluate(Slice(), {ids, {}, targets}, &loss).ok());
    return loss;
  }

  StatusOr<published::Weights> weights_;
};
INSTANTIATE_TEST_SUITE_P(Folders, Lora,
                         ::testing::Values("gpt2", "llama3", "qwen2_5", "qwen3", "mixtral",
                                           "qwen2_moe"),
                         [](const auto& test) { return test.param; });

TEST_P(Lora, BeginsAsThePublishedModel) {
  StageOptions plain = Adapted();
  plain.model.lora.reset();
  for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
    StageOptions adapted = Adapted();
    plain.train.dtype = adapted.train.dtype = dtype;
    const auto published = Loaded(plain), begun = Loaded(adapted);
    // In bf16 the embedding's rows are rounded, too.
    EXPECT_NEAR(LossOf(*begun), LossOf(*published), dtype == ComputeDtype::kFp32 ? 0 : 0.02);
    const StageSnapshot snapshot = *begun->Snapshot();
    for (const NamedArray& array : snapshot.parameters) {
      std::vector<float> expected(array.values.size());
      if (array.name.ends_with("lora_A.weight")) {
        FillNormal(adapted.train.seed, array.name,
                   1 / std::sqrt(3.0 * static_cast<double>(array.shape[1])), expected);
      }
      EXPECT_EQ(array.values, expected) << array.name;
    }
  }
}

// With W' = W + s B A: dB = s dW' A^T and dA = s B^T dW', and the input's gradient is that of W'.
TEST_P(Lora, ForwardAndGradientsAreThoseOfTheMergedModel) {
  const StageOptions adapted = Adapted();
  const LoraSpec& lora = *adapted.model.lora;
  const auto network = Model::Create(adapted);
  ASSERT_TRUE(network->Load(Read(adapted)).ok());
  std::map<std::string, at::Tensor> adapters, gradients;
  {
    const at::NoGradGuard no_grad;
    for (const Parameter& parameter : network->parameters()) {
      if (parameter.name.ends_with("lora_B.weight")) {
        FillNormal(5, parameter.name, 0.05,
                   std::span(parameter.value.data_ptr<float>(),
                             static_cast<size_t>(parameter.value.numel())));
      }
      adapters[parameter.name] = parameter.value.detach();
    }
  }
  network->RefreshCasts();

  StageOptions merged_options = adapted;
  merged_options.model.lora.reset();
  const auto merged = Model::Create(merged_options);
  const ReadParameter read = Read(merged_options);
  const auto span_of = [](const at::Tensor& tensor) {
    return std::span<const float>(tensor.const_data_ptr<float>(),
                                  static_cast<size_t>(tensor.numel()));
  };
  ASSERT_TRUE(merged
                  ->Load([&](const model::PlacedParameter& parameter, std::span<float> values) {
                    LH_RETURN_IF_ERROR(read(parameter, values));
                    if (!model::HasAdapters(lora, parameter)) return absl::OkStatus();
                    const auto [a, b] = model::AdaptersOf(lora, parameter);
                    model::Merge(lora, parameter.parameter.shape, span_of(adapters.at(a.Name())),
                                 span_of(adapters.at(b.Name())), values);
                    return absl::OkStatus();
                  })
                  .ok());

  std::vector<int64_t> raw(kRows * kTokens);
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<int64_t>(i * 13 % 90);
  const at::Tensor ids = at::tensor(raw, at::kLong).view({kRows, kTokens});
  const at::Tensor targets = (ids * 7 + 3) % 90;
  for (const auto& model : {network.get(), merged.get()}) {
    model->Loss(model->Forward(ids), targets).backward();
  }
  {
    const at::NoGradGuard no_grad;
    const at::Tensor difference = network->Forward(ids) - merged->Forward(ids);
    EXPECT_LT(difference.abs().max().item<double>(), 1e-5);
    EXPECT_GT(network->Forward(ids).abs().max().item<double>(), 1e-2);
  }
  for (const Parameter& parameter : merged->parameters())
    gradients[parameter.name] = parameter.value.grad();
  const auto placed = model::ParametersOf(
      merged_options.model, adapted.vocabulary,
      {.first_layer = 0, .layers = adapted.layers, .embedding = true, .head = true});
  std::map<std::string, at::Tensor> of_adapters;
  for (const Parameter& parameter : network->parameters())
    of_adapters[parameter.name] = parameter.value.grad();
  size_t compared = 0;
  for (const model::PlacedParameter& matrix : placed) {
    if (!model::HasAdapters(lora, matrix)) continue;
    const auto [a, b] = model::AdaptersOf(lora, matrix);
    const at::Tensor whole = gradients.at(matrix.Name()) * lora.scale();
    const at::Tensor of_b = whole.mm(adapters.at(a.Name()).t());
    const at::Tensor of_a = adapters.at(b.Name()).t().mm(whole);
    for (const auto& [name, expected] : {std::pair(a.Name(), of_a), std::pair(b.Name(), of_b)}) {
      const double largest = expected.abs().max().item<double>();
      EXPECT_GT(largest, 0) << name;
      EXPECT_LT((of_adapters.at(name) - expected).abs().max().item<double>(), 1e-4 * largest)
          << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, network->parameters().size());
}

TEST_P(Lora, WhatIsFrozenStaysToTheBitAndIsInNoSnapshot) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    StageOptions options = Adapted();
    options.train.optimizer.kind = kind;
    const auto stage = Loaded(options);
    const double before = LossOf(*stage);
    const StageSnapshot begun = *stage->Snapshot();
    for (uint64_t step = 1; step <= 3; ++step) Train({stage.get()}, step);
    const StageSnapshot trained = *stage->Snapshot();
    EXPECT_NE(LossOf(*stage), before);
    ASSERT_EQ(trained.parameters.size(), begun.parameters.size());
    uint64_t count = 0;
    for (size_t i = 0; i < trained.parameters.size(); ++i) {
      EXPECT_NE(trained.parameters[i].name.find(".lora_"), std::string::npos);
      EXPECT_NE(trained.parameters[i].values, begun.parameters[i].values)
          << trained.parameters[i].name;
      count += trained.parameters[i].values.size();
    }
    EXPECT_EQ(stage->parameter_count(), count);
    for (const NamedArray& moment : trained.moments) {
      EXPECT_NE(moment.name.find(".lora_"), std::string::npos) << moment.name;
    }
    ASSERT_TRUE(stage->Restore(begun).ok());
    EXPECT_EQ(LossOf(*stage), before);
    // Another process: the base from where it began, the rest from the snapshot.
    const auto other = Loaded(options);
    ASSERT_TRUE(other->Restore(trained).ok());
    ASSERT_TRUE(stage->Restore(trained).ok());
    EXPECT_EQ(LossOf(*other), LossOf(*stage));
    EXPECT_EQ(Train({other.get()}, 4), Train({stage.get()}, 4));
  }
}

// Tied ones (qwen2_5, llama3, gpt2) too: each end has the matrix.
TEST_P(Lora, TwoStagesAreOneToTheBit) {
  for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks, Recompute::kStage}) {
      StageOptions options = Adapted();
      options.train.dtype = dtype;
      options.recompute = recompute;
      const auto whole = Loaded(options);
      const auto first = Loaded(First(options)), second = Loaded(Second(options));
      for (uint64_t step = 1; step <= 3; ++step) {
        EXPECT_EQ(Train({first.get(), second.get()}, step), Train({whole.get()}, step)) << step;
      }
      std::vector<NamedArray> parts = first->Snapshot()->parameters;
      const StageSnapshot rest = *second->Snapshot();
      parts.insert(parts.end(), rest.parameters.begin(), rest.parameters.end());
      const StageSnapshot all = *whole->Snapshot();
      ASSERT_EQ(parts.size(), all.parameters.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(parts[i].name, all.parameters[i].name);
        EXPECT_EQ(parts[i].values, all.parameters[i].values) << parts[i].name;
      }
    }
  }
}

TEST_P(Lora, WhatIsFrozenHasTheTypeOfProductsAndNothingBeside) {
  for (const ComputeDtype dtype : {ComputeDtype::kFp32, ComputeDtype::kBf16}) {
    StageOptions options = Adapted();
    options.train.dtype = dtype;
    const auto stage = Loaded(options);
    uint64_t expected = 0;
    for (const model::PlacedParameter& one : model::ParametersOf(
             options.model, options.vocabulary,
             {.first_layer = 0, .layers = options.layers, .embedding = true, .head = true})) {
      const bool norm = !one.parameter.in_product && !one.parameter.shape.is_matrix();
      const bool half = dtype == ComputeDtype::kBf16 && !norm;
      // An adapter with two moments.
      expected += one.parameter.shape.elements() * (one.parameter.adapter ? 12 : half ? 2 : 4);
    }
    EXPECT_EQ(stage->memory_bytes(), expected);
    Train({stage.get()}, 1);
    EXPECT_EQ(stage->memory_bytes(), expected);
  }
}

TEST_P(Lora, AStageWithoutAdaptersPassesOn) {
  StageOptions options = Adapted();
  options.first_layer = options.layers = 0;
  options.last = false;
  const auto embedding = Loaded(options);
  EXPECT_EQ(embedding->parameter_count(), 0u);
  const auto whole = Loaded(Adapted());
  const auto rest = [&] {
    StageOptions other = Adapted();
    other.first = false;
    return Loaded(other);
  }();
  EXPECT_EQ(Train({embedding.get(), rest.get()}, 1), Train({whole.get()}, 1));
}

TEST_P(Lora, IsMeasured) {
  const auto times = MeasureLayerTimes(Adapted());
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GT(times->block.backward, 0);
  EXPECT_GT(times->optimizer_seconds_per_parameter, 0);
  EXPECT_LT(times->optimizer_seconds_per_parameter, 1e-3);
}

}  // namespace
}  // namespace longhaul::worker
