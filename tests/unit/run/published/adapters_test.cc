#include "run/published/adapters.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "run/model/lora.h"
#include "run/published/export.h"
#include "run/published/safetensors.h"
#include "tests/support/temp_dir.h"

namespace longhaul::published {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using AdapterJson = nlohmann::json;

std::string Fixture(const std::string& name) {
  return std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/" + name;
}

ModelSpec ModelIn(const std::string& fixture) {
  const std::string path = Fixture("models/" + fixture) + "/config.json";
  return ParseConfig(ReadFile(path).value(), path).value().model;
}

AdapterJson GoodConfig() {
  return {
      {"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj", "v_proj"}}};
}

std::string ProblemIn(const AdapterJson& config) {
  const auto lora = ParseAdapterConfig(config.dump(), "f.json", ModelIn("qwen2_5"));
  if (lora.ok()) return "no problem";
  EXPECT_EQ(lora.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(Message(lora.status()));
}
std::string ProblemOf(const std::string& key, const AdapterJson& value) {
  AdapterJson config = GoodConfig();
  config[key] = value;
  return ProblemIn(config);
}

TEST(AdapterConfig, IsWhatPeftWrites) {
  const auto rslora = ReadAdapters(Fixture("adapters/qwen2_5_rslora"), ModelIn("qwen2_5"));
  ASSERT_TRUE(rslora.ok()) << rslora.status();
  EXPECT_EQ(rslora->lora.rank, 4u);
  EXPECT_EQ(rslora->lora.alpha, 3.5);
  EXPECT_TRUE(rslora->lora.rslora);
  EXPECT_EQ(rslora->lora.scale(), 1.75);
  EXPECT_EQ(rslora->lora.dropout, 0.05);
  EXPECT_THAT(rslora->lora.targets, UnorderedElementsAre("q_proj", "v_proj", "down_proj"));
  EXPECT_EQ(rslora->tensors.size(), 18u);
  for (const Tensor& tensor : rslora->tensors) {
    EXPECT_TRUE(IsOfAdapter(tensor)) << tensor.name;
    EXPECT_EQ(tensor.file, "adapter_model.safetensors");
  }
  const auto gpt = ReadAdapters(Fixture("adapters/gpt2"), ModelIn("gpt2"));
  ASSERT_TRUE(gpt.ok()) << gpt.status();
  EXPECT_EQ(gpt->lora.scale(), 2);
  EXPECT_FALSE(gpt->lora.rslora);
  EXPECT_EQ(gpt->tensors.size(), 6u);
}

TEST(AdapterConfig, LeftOutSettingsAreThoseOfPeft) {
  const auto lora = ParseAdapterConfig(GoodConfig().dump(), "f.json", ModelIn("qwen2_5"));
  ASSERT_TRUE(lora.ok()) << lora.status();
  EXPECT_EQ(*lora, (LoraSpec{.rank = 4, .alpha = 8, .targets = {"q_proj", "v_proj"}}));
  AdapterJson all = GoodConfig();
  all["target_modules"] = "all-linear";
  EXPECT_EQ(ParseAdapterConfig(all.dump(), "f.json", ModelIn("qwen2_5"))->targets.size(), 7u);
}

TEST(AdapterConfig, RefusesWhatChangesTheComputation) {
  EXPECT_EQ(ProblemOf("use_dora", true),
            "f.json: use_dora: expected none, got true; this setting scales the rows of adapted "
            "matrices (DoRA), which longhaul does not; begin with adapters that were made without "
            "it");
  EXPECT_THAT(ProblemOf("modules_to_save", {"lm_head"}),
              HasSubstr("modules_to_save: expected none, got [\"lm_head\"]; this setting trains "
                        "whole modules beside the adapters"));
  EXPECT_EQ(ProblemOf("bias", "lora_only"),
            "f.json: bias: expected \"none\", got \"lora_only\"; longhaul trains no biases beside "
            "adapters; begin with adapters that were made with bias none");
  EXPECT_THAT(ProblemOf("rank_pattern", {{"q_proj", 8}}),
              HasSubstr("rank_pattern: expected none, got {\"q_proj\":8}; longhaul's adapters all "
                        "have one rank and one alpha"));
  EXPECT_THAT(ProblemOf("alpha_pattern", {{"q_proj", 8}}), HasSubstr("alpha_pattern: expected"));
  EXPECT_THAT(ProblemOf("layers_to_transform", {0, 1}), HasSubstr("adapts only some layers"));
  EXPECT_THAT(ProblemOf("trainable_token_indices", {1}), HasSubstr("rows of the embedding"));
  EXPECT_THAT(ProblemOf("lora_bias", true), HasSubstr("gives the adapters biases"));
  EXPECT_THAT(ProblemOf("exclude_modules", "q_proj"), HasSubstr("leaves some modules out"));
  EXPECT_THAT(ProblemOf("init_lora_weights", "pissa_niter_4"),
              HasSubstr("expected adapters of the published model, got \"pissa_niter_4\""));
  EXPECT_THAT(ProblemOf("peft_type", "IA3"),
              HasSubstr("peft_type: expected \"LORA\", got \"IA3\""));
  EXPECT_THAT(ProblemOf("of_tomorrow", 1), HasSubstr("of_tomorrow: longhaul does not know"));
  EXPECT_THAT(ProblemOf("r", 0), HasSubstr("r: expected a whole number from 1 to 4096, got 0"));
  EXPECT_THAT(ProblemOf("lora_alpha", -1), HasSubstr("lora_alpha: expected a number above 0"));
  EXPECT_THAT(ProblemOf("lora_dropout", 1),
              HasSubstr("expected a number from 0 to below 1, got 1"));
  EXPECT_THAT(ProblemOf("target_modules", ".*q_proj"),
              HasSubstr("got the pattern \".*q_proj\"; write the names that it matches"));
  EXPECT_THAT(ProblemOf("target_modules", AdapterJson::array()), HasSubstr("expected a list"));
  EXPECT_THAT(ProblemOf("target_modules", {"c_attn"}),
              HasSubstr("no block of the model has a module 'c_attn'; expected some of q_proj"));
  for (const char* const how : {"gaussian", "eva", "orthogonal"}) {
    EXPECT_EQ(ProblemOf("init_lora_weights", how), "no problem") << how;
  }
  // The same for settings that have their value without effect.
  for (const char* const key : {"use_dora", "lora_bias"}) {
    EXPECT_EQ(ProblemOf(key, false), "no problem");
  }
  EXPECT_EQ(ProblemOf("rank_pattern", AdapterJson::object()), "no problem");
  EXPECT_THAT(ParseAdapterConfig("[]", "f.json", ModelIn("qwen2_5")).status().message(),
              HasSubstr("f.json: expected a JSON object, such as PEFT writes"));
}

TEST(AdapterConfig, AllProblemsAreSaidAtOnce) {
  AdapterJson config = GoodConfig();
  config["use_dora"] = true;
  config["bias"] = "all";
  config["r"] = "8";
  const std::string problem = ProblemIn(config);
  for (const char* const key : {"use_dora", "bias", "f.json: r:"}) {
    EXPECT_THAT(problem, HasSubstr(key));
  }
  EXPECT_EQ(std::ranges::count(problem, '\n'), 2);
}

// A copy of a fixture that a test changes.
class AdapterFolder {
 public:
  explicit AdapterFolder(const std::string& fixture) : from_(Fixture("adapters/" + fixture)) {
    for (const char* const name : {"adapter_config.json", "adapter_model.safetensors"}) {
      std::filesystem::copy_file(from_ + "/" + name, path() + "/" + name);
    }
  }
  void Set(const std::string& key, const AdapterJson& value) const {
    const std::string file = path() + "/adapter_config.json";
    AdapterJson config = AdapterJson::parse(ReadFile(file).value());
    config[key] = value;
    EXPECT_TRUE(WriteFileAtomic(file, config.dump()).ok());
  }
  std::string Problem(const std::string& model) const {
    const auto adapters = ReadAdapters(path(), ModelIn(model));
    if (adapters.ok()) return "no problem";
    std::string text(Message(adapters.status()));
    for (size_t at; (at = text.find(path())) != std::string::npos;) {
      text.replace(at, path().size(), "F");
    }
    return text;
  }
  const std::string& path() const { return dir_.path(); }

 private:
  const std::string from_;
  testing::TempDir dir_;
};

TEST(ReadAdapters, EveryTensorHasItsAdapterAndEveryAdapterItsTensor) {
  const AdapterFolder folder("qwen2_5_rslora");
  EXPECT_EQ(folder.Problem("qwen2_5"), "no problem");
  folder.Set("target_modules", {"q_proj", "v_proj", "k_proj"});
  const std::string problem = folder.Problem("qwen2_5");
  EXPECT_THAT(problem,
              HasSubstr("F/adapter_model.safetensors: there is no tensor "
                        "'base_model.model.model.layers.2.self_attn.k_proj.lora_B.weight'"));
  EXPECT_THAT(problem, HasSubstr("'base_model.model.model.layers.0.mlp.down_proj.lora_A.weight' "
                                 "belongs to no adapter that adapter_config.json names"));
  EXPECT_EQ(std::ranges::count(problem, '\n'), 11);
}

TEST(ReadAdapters, ShapesAreThoseOfTheModel) {
  const AdapterFolder folder("qwen2_5_rslora");
  folder.Set("r", 5);
  EXPECT_THAT(folder.Problem("qwen2_5"),
              HasSubstr("q_proj.lora_A.weight' has the shape (4, 32), and the model of "
                        "config.json has (5, 32)"));
  const AdapterFolder other("gpt2");
  EXPECT_THAT(other.Problem("qwen2_5"), HasSubstr("no block of the model has a module 'c_attn'"));
}

TEST(ReadAdapters, OtherFormatsAndMissingFilesAreNamed) {
  const AdapterFolder folder("gpt2");
  std::filesystem::remove(folder.path() + "/adapter_model.safetensors");
  EXPECT_THAT(folder.Problem("gpt2"),
              HasSubstr("F: expected adapter_model.safetensors beside adapter_config.json"));
  std::filesystem::remove(folder.path() + "/adapter_config.json");
  EXPECT_THAT(folder.Problem("gpt2"), HasSubstr("adapter_config.json"));
}

// Values that tell every element of every parameter from every other one.
class Exported {
 public:
  Exported(const ModelSpec& base, const LoraSpec& lora) : model_(base) {
    model_.lora = lora;
    const Status written =
        WriteAdapters(dir_.path(), {.model = model_, .base = "base", .files = {}},
                      [&](const model::PlacedParameter& parameter) {
                        std::vector<float>& values = values_[parameter.Name()];
                        values.resize(parameter.parameter.shape.elements());
                        for (float& value : values) value = next_++;
                        return std::span<const float>(values);
                      });
    EXPECT_TRUE(written.ok()) << written;
  }
  const ModelSpec& model() const { return model_; }
  const std::string& path() const { return dir_.path(); }
  // Reads the folder again, and compares all adapters.
  void ExpectReadsAgain() const {
    ModelSpec base = model_;
    base.lora.reset();
    const auto read = ReadAdapters(path(), base);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->lora, *model_.lora);
    Weights weights;
    weights.tensors = read->tensors;
    size_t compared = 0;
    for (const model::PlacedParameter& parameter : model::ParametersOf(
             model_, *model_.vocabulary, {.first_layer = 0, .layers = model_.layers})) {
      if (!parameter.parameter.adapter) continue;
      const auto tensor = TensorOf(weights, model_, parameter);
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      const auto bytes = ReadTensor(path(), **tensor);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      std::vector<float> values(parameter.parameter.shape.elements());
      Decode(**tensor, *bytes, parameter.parameter, values);
      EXPECT_EQ(values, values_.at(parameter.Name())) << parameter.Name();
      ++compared;
    }
    EXPECT_EQ(compared, values_.size());
  }

 private:
  testing::TempDir dir_;
  ModelSpec model_;
  std::map<std::string, std::vector<float>> values_;
  float next_ = 1;
};

TEST(WriteAdapters, ReadAgainTheyAreTheSame) {
  for (const char* const name : {"gpt2", "qwen2_5", "mixtral", "qwen2_moe", "phi3"}) {
    SCOPED_TRACE(name);
    const ModelSpec base = ModelIn(name);
    for (const bool rslora : {false, true}) {
      Exported(base, {.rank = 3,
                      .alpha = 7.5,
                      .rslora = rslora,
                      .dropout = 0.25,
                      .targets = model::TargetsOf(base)})
          .ExpectReadsAgain();
    }
  }
}

// Phi-3: q_proj, k_proj and v_proj are rows of qkv_proj. PEFT multiplies by alpha / rank of the
// module.
TEST(WriteAdapters, AdaptersOfOnePublishedModuleAreOneBlockDiagonalAdapter) {
  const Exported folder(ModelIn("phi3"),
                        {.rank = 2, .alpha = 6, .targets = {"qkv_proj", "o_proj"}});
  const auto config = AdapterJson::parse(ReadFile(folder.path() + "/adapter_config.json").value());
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["rank_pattern"], (AdapterJson{{"qkv_proj", 6}}));
  EXPECT_EQ(config["alpha_pattern"], (AdapterJson{{"qkv_proj", 18}}));
  Weights weights;
  ASSERT_TRUE(ListTensors(folder.path(), "adapter_model.safetensors", &weights).ok());
  EXPECT_EQ(weights.tensors.size(), 3u * 4);
  const std::string module = "base_model.model.model.layers.0.self_attn.qkv_proj.lora_";
  EXPECT_THAT(weights.Find(module + "A.weight")->shape, ElementsAre(6, 32));
  const Tensor& b = *weights.Find(module + "B.weight");
  EXPECT_THAT(b.shape, ElementsAre(64, 6));
  const auto bytes = ReadTensor(folder.path(), b);
  ASSERT_TRUE(bytes.ok());
  const auto* const values = reinterpret_cast<const float*>(bytes->data());
  for (int row = 0; row < 64; ++row) {
    const int part = row < 32 ? 0 : row < 48 ? 1 : 2;
    for (int column = 0; column < 6; ++column) {
      EXPECT_EQ(values[row * 6 + column] != 0, column / 2 == part) << row << " " << column;
    }
  }
}

TEST(ReadAdapters, AStackedModuleGivesEachMatrixTheSameAAndItsRowsOfB) {
  const auto adapters = ReadAdapters(Fixture("adapters/phi3"), ModelIn("phi3"));
  ASSERT_TRUE(adapters.ok()) << adapters.status();
  ModelSpec model = ModelIn("phi3");
  model.lora = adapters->lora;
  Weights weights;
  weights.tensors = adapters->tensors;
  std::map<std::string, std::vector<float>> values;
  for (const model::PlacedParameter& parameter :
       model::ParametersOf(model, *model.vocabulary, {.first_layer = 0, .layers = 1})) {
    if (!parameter.parameter.adapter) continue;
    const auto tensor = TensorOf(weights, model, parameter);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    const auto bytes = ReadTensor(Fixture("adapters/phi3"), **tensor);
    ASSERT_TRUE(bytes.ok());
    auto& of_parameter = values[parameter.Name()];
    of_parameter.resize(parameter.parameter.shape.elements());
    Decode(**tensor, *bytes, parameter.parameter, of_parameter);
  }
  const std::string prefix = "model.layers.0.self_attn.";
  EXPECT_EQ(values.at(prefix + "q_proj.lora_A.weight"), values.at(prefix + "k_proj.lora_A.weight"));
  EXPECT_EQ(values.at(prefix + "q_proj.lora_A.weight"), values.at(prefix + "v_proj.lora_A.weight"));
  EXPECT_NE(values.at(prefix + "k_proj.lora_B.weight"), values.at(prefix + "v_proj.lora_B.weight"));
  EXPECT_EQ(values.at(prefix + "q_proj.lora_B.weight").size(), 64u);
  EXPECT_EQ(values.at(prefix + "v_proj.lora_B.weight").size(), 32u);
}

TEST(ReadAdapters, ARankPatternAloneIsNotBlockDiagonal) {
  Exported folder(ModelIn("phi3"), {.rank = 2, .alpha = 6, .targets = {"qkv_proj"}});
  const std::string path = folder.path() + "/adapter_model.safetensors";
  std::string file = ReadFile(path).value();
  Weights weights;
  ASSERT_TRUE(ListTensors(folder.path(), "adapter_model.safetensors", &weights).ok());
  const Tensor& b =
      *weights.Find("base_model.model.model.layers.1.self_attn.qkv_proj.lora_B.weight");
  file[b.offset + 6 * 4 - 1] = 1;  // the last number of the first row
  ASSERT_TRUE(WriteFileAtomic(path, file).ok());
  ModelSpec base = folder.model();
  base.lora.reset();
  EXPECT_THAT(ReadAdapters(folder.path(), base).status().message(),
              HasSubstr("has numbers outside the block of model.layers.1.self_attn.q_proj."
                        "lora_B.weight"));
}

}  // namespace
}  // namespace longhaul::published
