// Logits and gradients of published models equal those that transformers computed
// (tests/fixtures/models).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "run/published/safetensors.h"
#include "run/published/weights.h"
#include "worker/stage/model/model.h"

namespace longhaul::worker {
namespace {

constexpr double kTolerance = 1e-4;

std::string Fixture(const std::string& name) {
  return std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/models/" + name;
}

// What transformers computed, as fp32 or int32.
class Computed {
 public:
  explicit Computed(const std::string& folder) {
    auto file = MappedFile::Open(folder + "/expected.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    auto table = published::ParseSafetensorsTable(file_.bytes(), file_.bytes().size());
    EXPECT_TRUE(table.ok()) << table.status();
    for (const published::TensorEntry& entry : table->tensors) entries_[entry.name] = entry;
  }
  bool Has(const std::string& name) const { return entries_.contains(name); }
  at::Tensor operator[](const std::string& name) const {
    const published::TensorEntry& entry = entries_.at(name);
    return at::from_blob(const_cast<std::byte*>(file_.bytes().data() + entry.begin), entry.shape,
                         entry.type == "I32" ? at::kInt : at::kFloat)
        .clone();
  }

 private:
  MappedFile file_;
  std::map<std::string, published::TensorEntry> entries_;
};

double LargestDifference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a - b).abs().max().item<double>();
}

class PublishedModels : public ::testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  PublishedModels() : weights_(published::ReadFolder(Fixture(GetParam().first))) {}
  void SetUp() override { ASSERT_TRUE(weights_.ok()) << weights_.status(); }

  // Options for sequences as long as those that transformers got.
  StageOptions Options(const at::Tensor& ids) const {
    StageOptions options;
    options.model = published::ParseConfig(weights_->config_json, "config.json")->model;
    options.vocabulary = *options.model.vocabulary;
    options.model.context = static_cast<uint32_t>(ids.size(1));
    options.layers = options.model.layers;
    options.train.microbatch_size = static_cast<uint32_t>(ids.size(0));
    options.train.microbatches = 1;
    options.loads = true;
    options.model.balance = Balance::kNone;  // no part of the loss that is compared
    return options;
  }
  ReadParameter ReadFrom(const StageOptions& options) const {
    return [this, &options](const model::PlacedParameter& parameter, std::span<float> values) {
      LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                          published::TensorOf(*weights_, options.model, parameter));
      LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                          published::ReadTensor(Fixture(GetParam().first), *tensor));
      published::Decode(*tensor, bytes, parameter.parameter, values);
      return absl::OkStatus();
    };
  }

  StatusOr<published::Weights> weights_;
};

// Folders, and where what transformers computed of them is.
INSTANTIATE_TEST_SUITE_P(
    Folders, PublishedModels,
    ::testing::Values(std::pair("gpt2", "gpt2"), std::pair("gpt2_sharded", "gpt2"),
                      std::pair("llama2", "llama2"), std::pair("llama2_bf16", "llama2_bf16"),
                      std::pair("llama3", "llama3"), std::pair("mistral", "mistral"),
                      std::pair("qwen2_5", "qwen2_5"), std::pair("qwen3", "qwen3"),
                      std::pair("smollm3", "smollm3"), std::pair("mixtral", "mixtral"),
                      std::pair("qwen2_moe", "qwen2_moe"), std::pair("qwen3_moe", "qwen3_moe"),
                      std::pair("olmo2", "olmo2"), std::pair("phi3", "phi3"),
                      std::pair("phi3_long", "phi3_long"), std::pair("gemma2", "gemma2"),
                      std::pair("gemma3", "gemma3"), std::pair("mistral_window", "mistral_window"),
                      std::pair("qwen2_window", "qwen2_window"),
                      std::pair("llama_yarn", "llama_yarn"),
                      std::pair("llama_dynamic", "llama_dynamic")),
    [](const auto& test) { return test.param.first; });

TEST_P(PublishedModels, GiveTheLogitsLossAndGradientsOfTransformers) {
  const Computed expected(Fixture(GetParam().second));
  const at::Tensor ids = expected["input_ids"].to(at::kLong);
  const StageOptions options = Options(ids);
  const auto network = Model::Create(options);
  const Status loaded = network->Load(ReadFrom(options));
  ASSERT_TRUE(loaded.ok()) << loaded;

  const at::Tensor logits = network->Forward(ids);
  EXPECT_LT(LargestDifference(logits.detach(), expected["logits"]), kTolerance);
  const int64_t last = ids.size(1) - 1;
  const at::Tensor loss = network->Loss(logits.narrow(1, 0, last), ids.narrow(1, 1, last));
  EXPECT_NEAR(loss.item<double>(), expected["loss"].item<double>(), 1e-5);

  loss.backward();
  size_t compared = 0;
  const auto placed = model::ParametersOf(
      options.model, options.vocabulary,
      {.first_layer = 0, .layers = options.layers, .embedding = true, .head = true});
  for (size_t i = 0; i < placed.size(); ++i) {
    const std::string name = "grad." + placed[i].PublishedName();
    if (!expected.Has(name)) continue;
    at::Tensor gradient = network->parameters()[i].value.grad();
    if (placed[i].parameter.published_transposed) gradient = gradient.t();
    at::Tensor theirs = expected[name];
    if (placed[i].parameter.published_rows > 0) {
      theirs = theirs.narrow(0, placed[i].parameter.published_first_row, gradient.size(0));
    }
    if (placed[i].parameter.first_rows_suffice) theirs = theirs.narrow(0, 0, gradient.size(0));
    const double largest = theirs.abs().max().item<double>();
    EXPECT_LT(LargestDifference(gradient, theirs), kTolerance * std::max(1.0, largest)) << name;
    ++compared;
  }
  const bool has_gradients = GetParam().second != "llama2_bf16";
  EXPECT_EQ(compared > placed.size() / 2, has_gradients);
}

}  // namespace
}  // namespace longhaul::worker
