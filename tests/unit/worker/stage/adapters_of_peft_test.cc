// Adapters that PEFT has written compute the logits that PEFT computes, and training goes on from
// them.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "run/published/adapters.h"
#include "run/published/weights.h"
#include "worker/stage/model/model.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

// The folder of adapters, and that of their model.
class AdaptersOfPeft : public ::testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  void SetUp() override {
    auto weights = published::ReadFolder(ModelFolder());
    ASSERT_TRUE(weights.ok()) << weights.status();
    weights_ = *std::move(weights);
    options_.model = published::ParseConfig(weights_.config_json, "config.json")->model;
    auto adapters = published::ReadAdapters(Folder(), options_.model);
    ASSERT_TRUE(adapters.ok()) << adapters.status();
    weights_.tensors.insert(weights_.tensors.end(), adapters->tensors.begin(),
                            adapters->tensors.end());
    options_.model.lora = adapters->lora;
    options_.vocabulary = *options_.model.vocabulary;
    options_.layers = options_.model.layers;
    options_.loads = options_.loads_adapters = true;
    options_.train.microbatches = 1;
    options_.train.microbatch_size = 2;
    options_.train.steps = 10;
  }
  static std::string Folder() {
    return std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/adapters/" + GetParam().first;
  }
  static std::string ModelFolder() {
    return std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/models/" + GetParam().second;
  }
  ReadParameter Read() const {
    return [this](const model::PlacedParameter& parameter, std::span<float> values) {
      LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                          published::TensorOf(weights_, options_.model, parameter));
      LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                          published::ReadTensor(
                              published::IsOfAdapter(*tensor) ? Folder() : ModelFolder(), *tensor));
      published::Decode(*tensor, bytes, parameter.parameter, values);
      return absl::OkStatus();
    };
  }
  static at::Tensor Expected(const std::string& name, at::ScalarType type) {
    published::Weights file;
    EXPECT_TRUE(published::ListTensors(Folder(), "expected.safetensors", &file).ok());
    const published::Tensor& tensor = *file.Find(name);
    std::vector<std::byte> bytes = published::ReadTensor(Folder(), tensor).value();
    return at::from_blob(bytes.data(), tensor.shape, type).clone();
  }

  published::Weights weights_;
  StageOptions options_;
};
INSTANTIATE_TEST_SUITE_P(Folders, AdaptersOfPeft,
                         ::testing::Values(std::pair("gpt2", "gpt2"),
                                           std::pair("qwen2_5_rslora", "qwen2_5"),
                                           std::pair("phi3", "phi3")),
                         [](const auto& test) { return test.param.first; });

TEST_P(AdaptersOfPeft, GiveItsLogits) {
  const at::Tensor ids = Expected("input_ids", at::kInt).to(at::kLong);
  const at::Tensor expected = Expected("logits", at::kFloat);
  const auto network = Model::Create(options_);
  const Status loaded = network->Load(Read());
  ASSERT_TRUE(loaded.ok()) << loaded;
  const at::NoGradGuard no_grad;
  const at::Tensor logits = network->Forward(ids);
  EXPECT_LT((logits - expected).abs().max().item<double>(), 1e-4);
  // Without the adapters they are others.
  StageOptions plain = options_;
  plain.model.lora.reset();
  const auto base = Model::Create(plain);
  ASSERT_TRUE(base->Load(Read()).ok());
  EXPECT_GT((base->Forward(ids) - expected).abs().max().item<double>(), 1e-2);
}

// Adapters are zero until they are loaded, and all of them are loaded.
TEST_P(AdaptersOfPeft, AreFirstValuesAndAreTrained) {
  auto stage = Stage::Create(options_);
  ASSERT_TRUE(stage.ok()) << stage.status();
  ASSERT_TRUE((*stage)->Load(Read()).ok());
  const StageSnapshot begun = (*stage)->Snapshot().value();
  EXPECT_FALSE(begun.parameters.empty());
  for (const NamedArray& array : begun.parameters) {
    EXPECT_TRUE(std::ranges::any_of(array.values, [](float value) { return value != 0; }))
        << array.name;
  }
  std::vector<int32_t> ids(2 * options_.model.context);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 29 % 90);
  ASSERT_TRUE((*stage)->Forward(Microbatch(0), {ids, {}, ids}).ok());
  ASSERT_TRUE((*stage)->Backward(Microbatch(0), {}).ok());
  ASSERT_TRUE((*stage)->OptimizerStep(Step(1), 1e-2, 1).ok());
  const StageSnapshot trained = (*stage)->Snapshot().value();
  for (size_t i = 0; i < begun.parameters.size(); ++i) {
    EXPECT_NE(trained.parameters[i].values, begun.parameters[i].values) << begun.parameters[i].name;
  }
}

}  // namespace
}  // namespace longhaul::worker
