#include "run/published/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "run/published/safetensors.h"
#include "tests/support/temp_dir.h"

namespace longhaul::published {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string FixtureFolder(const std::string& name) {
  return std::string(LONGHAUL_SOURCE_DIR) + "/tests/fixtures/models/" + name;
}

struct Stored {
  TensorEntry entry;
  std::string bytes;
};

// A copy of a fixture that a test changes.
class Folder {
 public:
  explicit Folder(const std::string& fixture)
      : config(Json::parse(ReadFile(FixtureFolder(fixture) + "/config.json").value())) {
    const std::string file = ReadFile(FixtureFolder(fixture) + "/model.safetensors").value();
    const auto table = ParseSafetensorsTable(std::as_bytes(std::span(file)), file.size());
    EXPECT_TRUE(table.ok()) << table.status();
    for (const TensorEntry& entry : table->tensors) {
      tensors[entry.name] = {entry, file.substr(entry.begin, entry.end - entry.begin)};
    }
  }

  void Rename(const std::string& from, const std::string& to) {
    Stored stored = tensors.at(from);
    tensors.erase(from);
    stored.entry.name = to;
    tensors[to] = std::move(stored);
  }
  void Add(const std::string& name, const std::string& type, std::vector<int64_t> shape) {
    TensorEntry entry{.name = name, .type = type, .shape = std::move(shape)};
    uint64_t bytes = BytesOfType(type);
    for (const int64_t extent : entry.shape) bytes *= static_cast<uint64_t>(extent);
    tensors[name] = {entry, std::string(bytes, '\0')};
  }
  void Put(const std::string& name, const std::string& contents) const {
    EXPECT_TRUE(WriteFileAtomic(path() + "/" + name, contents).ok());
  }
  // The tensors of `names`, or all of them.
  void PutTensors(const std::string& file, const std::vector<std::string>& names = {}) const {
    std::vector<TensorEntry> entries;
    std::string bytes;
    for (const auto& [name, stored] : tensors) {
      if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) continue;
      entries.push_back(stored.entry);
      bytes += stored.bytes;
    }
    Put(file, SafetensorsHeader(entries, {{"format", "pt"}}) + bytes);
  }
  StatusOr<Weights> Read() const {
    Put("config.json", config.dump());
    PutTensors("model.safetensors");
    return ReadFolder(path());
  }
  std::string Problem() const {
    const auto weights = Read();
    EXPECT_EQ(weights.status().code(), absl::StatusCode::kInvalidArgument) << weights.status();
    return Without(path(), weights.status());
  }
  static std::string Without(const std::string& path, const Status& status) {
    std::string text(Message(status));
    for (size_t at; (at = text.find(path)) != std::string::npos;)
      text.replace(at, path.size(), "F");
    return text;
  }
  const std::string& path() const { return dir_.path(); }

  Json config;
  std::map<std::string, Stored> tensors;

 private:
  testing::TempDir dir_;
};

Weights Hashed(const std::string& folder) {
  auto weights = ReadFolder(folder);
  EXPECT_TRUE(weights.ok()) << weights.status();
  if (!weights.ok()) return {};
  const Status hashed = HashTensors(folder, &*weights, nullptr);
  EXPECT_TRUE(hashed.ok()) << hashed;
  return *std::move(weights);
}

ModelSpec ModelOf(const Weights& weights) {
  return ParseConfig(weights.config_json, "config.json").value().model;
}
std::vector<model::PlacedParameter> ParametersOf(const ModelSpec& model) {
  return model::ParametersOf(
      model, *model.vocabulary,
      {.first_layer = 0, .layers = model.layers, .embedding = true, .head = true});
}

// The values of all parameters, by their names here.
std::map<std::string, std::vector<float>> ValuesOf(const std::string& folder,
                                                   const Weights& weights) {
  std::map<std::string, std::vector<float>> values;
  const ModelSpec model = ModelOf(weights);
  for (const model::PlacedParameter& parameter : ParametersOf(model)) {
    const auto tensor = TensorOf(weights, model, parameter);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    const auto bytes = ReadTensor(folder, **tensor);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    std::vector<float>& of_parameter = values[parameter.Name()];
    of_parameter.resize(parameter.parameter.shape.elements());
    Decode(**tensor, *bytes, parameter.parameter, of_parameter);
  }
  return values;
}

TEST(ReadFolder, EveryFixtureHasATensorForEachParameter) {
  for (const std::string name :
       {"gpt2", "gpt2_sharded", "llama2", "llama2_bf16", "llama3", "mistral", "qwen2_5", "qwen3",
        "mixtral", "qwen2_moe", "qwen3_moe"}) {
    const auto weights = ReadFolder(FixtureFolder(name));
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(weights->config_json, ReadFile(FixtureFolder(name) + "/config.json").value());
    const ModelSpec model = ModelOf(*weights);
    const auto parameters = ParametersOf(model);
    EXPECT_EQ(weights->tensors.size(), parameters.size()) << name;
    for (const model::PlacedParameter& parameter : parameters) {
      const auto tensor = TensorOf(*weights, model, parameter);
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      EXPECT_EQ((*tensor)->name, parameter.PublishedName());
      EXPECT_EQ((*tensor)->type, name == "llama2_bf16" ? "BF16" : "F32");
      EXPECT_EQ((*tensor)->bytes,
                parameter.parameter.shape.elements() * BytesOfType((*tensor)->type));
    }
    for (size_t i = 1; i < weights->tensors.size(); ++i) {
      const Tensor &a = weights->tensors[i - 1], &b = weights->tensors[i];
      EXPECT_LT(std::pair(a.file, a.offset), std::pair(b.file, b.offset));
    }
    // The tokenizer's, in one of them.
    EXPECT_EQ(weights->files.empty(), name != "qwen2_5");
  }
}

TEST(ReadFolder, ShardsHaveWhatOneFileHas) {
  const Weights whole = Hashed(FixtureFolder("gpt2")),
                sharded = Hashed(FixtureFolder("gpt2_sharded"));
  ASSERT_EQ(whole.tensors.size(), sharded.tensors.size());
  std::set<std::string> files;
  for (const Tensor& tensor : whole.tensors) {
    const Tensor* other = sharded.Find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->sha256, tensor.sha256);
    EXPECT_EQ(other->shape, tensor.shape);
    files.insert(other->file);
  }
  EXPECT_EQ(files.size(), 3u);
  EXPECT_EQ(ValuesOf(FixtureFolder("gpt2"), whole),
            ValuesOf(FixtureFolder("gpt2_sharded"), sharded));
}

// As the Hub's gpt2: the bare model's names, and masks, which the model makes itself.
TEST(ReadFolder, NamesWithoutPrefixAndMasks) {
  Folder folder("gpt2");
  const auto expected = ValuesOf(FixtureFolder("gpt2"), Hashed(FixtureFolder("gpt2")));
  for (const std::string& name : [&] {
         std::vector<std::string> names;
         for (const auto& [name, stored] : folder.tensors) names.push_back(name);
         return names;
       }()) {
    folder.Rename(name, name.substr(std::string("transformer.").size()));
  }
  for (const std::string layer : {"0", "1", "2"}) {
    folder.Add("h." + layer + ".attn.bias", "F32", {1, 1, 32, 32});
    folder.Add("h." + layer + ".attn.masked_bias", "F32", {});
  }
  const auto weights = folder.Read();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->Find("h.0.attn.bias"), nullptr);
  EXPECT_NE(weights->Find("h.0.attn.c_attn.bias"), nullptr);
  EXPECT_EQ(ValuesOf(folder.path(), *weights), expected);
}

TEST(ReadFolder, FrequenciesOfRotaryEmbeddingsAreNotLearnt) {
  Folder folder("llama2");
  folder.Add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {4});
  const auto weights = folder.Read();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->tensors.size(), ParametersOf(ModelOf(*weights)).size());
}

TEST(ReadFolder, ATiedModelsHeadIsItsEmbedding) {
  Folder folder("llama3");
  const auto without = folder.Read();
  ASSERT_TRUE(without.ok()) << without.status();
  folder.Add("lm_head.weight", "F32", {96, 32});
  const auto with = folder.Read();
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->Find("lm_head.weight"), nullptr);
  EXPECT_EQ(with->tensors.size(), without->tensors.size());

  // A run that trains the two apart begins with the same values.
  ModelSpec apart = ModelOf(*with);
  apart.tied = false;
  const auto parameters = ParametersOf(apart);
  EXPECT_EQ(TensorOf(*with, apart, parameters.front()).value(),
            TensorOf(*with, apart, parameters.back()).value());
}

TEST(ReadFolder, AModelThatIsNotTiedNeedsItsHead) {
  Folder folder("llama2");
  folder.tensors.erase("lm_head.weight");
  EXPECT_EQ(folder.Problem(),
            "F: there is no tensor 'lm_head.weight', and config.json has no "
            "tie_word_embeddings: true");
}

TEST(ReadFolder, AllThatIsWrongWithTensorsIsSaidAtOnce) {
  Folder folder("qwen3");
  folder.tensors.erase("model.layers.1.self_attn.q_norm.weight");
  folder.Add("model.layers.0.self_attn.q_proj.weight", "F32", {32, 64});
  folder.Add("model.layers.2.mlp.up_proj.weight", "I8", {48, 32});
  folder.Add("model.norm.weight", "F32", {});
  folder.Add("score.weight", "F32", {2, 32});
  const std::string problem = folder.Problem();
  EXPECT_THAT(problem, HasSubstr("F: there is no tensor 'model.layers.1.self_attn.q_norm.weight'"));
  EXPECT_THAT(problem,
              HasSubstr("F: 'model.layers.0.self_attn.q_proj.weight' has the shape (32, 64), and "
                        "the model of config.json has (64, 32)"));
  EXPECT_THAT(problem, HasSubstr("F: 'model.layers.2.mlp.up_proj.weight' has the type I8, and "
                                 "longhaul reads F32, BF16 and F16"));
  EXPECT_THAT(problem, HasSubstr("F: 'model.norm.weight' has the shape (), and the model of "
                                 "config.json has (32)"));
  EXPECT_THAT(problem, HasSubstr("F: model.safetensors has 'score.weight', for which the model of "
                                 "config.json has no place"));
}

TEST(ReadFolder, AFileMayHaveMorePositionsThanAreRead) {
  Folder folder("gpt2");
  const auto whole = folder.Read();
  ASSERT_TRUE(whole.ok());
  ModelSpec shorter = ModelOf(*whole);
  shorter.context = 8;
  for (const model::PlacedParameter& parameter : ParametersOf(shorter)) {
    EXPECT_TRUE(TensorOf(*whole, shorter, parameter).ok()) << parameter.Name();
  }
  ModelSpec longer = shorter;
  longer.context = 33;
  EXPECT_FALSE(TensorOf(*whole, longer, ParametersOf(longer)[1]).ok());
  // No other tensor may have more rows.
  folder.Add("transformer.wte.weight", "F32", {97, 24});
  EXPECT_THAT(folder.Problem(), HasSubstr("'transformer.wte.weight' has the shape (97, 24)"));
}

TEST(ReadFolder, ShardsThatAreWrong) {
  Folder folder("gpt2");
  folder.Put("config.json", folder.config.dump());
  const auto read = [&](const std::string& index) {
    folder.Put("model.safetensors.index.json", index);
    const auto weights = ReadFolder(folder.path());
    EXPECT_EQ(weights.status().code(), absl::StatusCode::kInvalidArgument) << weights.status();
    return Folder::Without(folder.path(), weights.status());
  };
  const auto naming = [](const std::string& file) {
    return Json{{"weight_map", {{"transformer.wte.weight", file}}}}.dump();
  };
  for (const std::string file : {"../x", "/etc/passwd", "a/b", "..", "", ".hidden"}) {
    EXPECT_EQ(read(naming(file)),
              "F/model.safetensors.index.json: 'transformer.wte.weight' lies in something that is "
              "no file name");
  }
  EXPECT_THAT(read(R"({"weight_map": {"a": 3}})"), HasSubstr("no file name"));
  for (const std::string text :
       {"", "{", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})"}) {
    EXPECT_THAT(read(text), HasSubstr("expected an object with a weight_map that names files"));
  }

  folder.PutTensors("cut");
  folder.Put("cut", ReadFile(folder.path() + "/cut").value().substr(0, 3000));
  const std::string missing =
      read(Json{{"weight_map", {{"a", "a.st"}, {"b", "b.st"}, {"c", "cut"}}}}.dump());
  EXPECT_THAT(missing, HasSubstr("F/a.st"));
  EXPECT_THAT(missing, HasSubstr("F/b.st"));
  EXPECT_THAT(missing, HasSubstr("F/cut: not a safetensors file"));

  folder.PutTensors("one");
  folder.PutTensors("two", {"transformer.wte.weight"});
  EXPECT_EQ(read(Json{{"weight_map", {{"a", "one"}, {"b", "two"}}}}.dump()),
            "F: both one and two have 'transformer.wte.weight'");
}

TEST(ReadFolder, OtherFormatsAreNamed) {
  const testing::TempDir empty;
  EXPECT_THAT(std::string(Message(ReadFolder(empty.path()).status())), HasSubstr("config.json"));
  Folder folder("gpt2");
  folder.Put("config.json", folder.config.dump());
  folder.Put("pytorch_model.bin", "PK");
  const auto weights = ReadFolder(folder.path());
  EXPECT_EQ(Folder::Without(folder.path(), weights.status()),
            "F: expected model.safetensors or model.safetensors.index.json; weights in other "
            "formats (pytorch_model.bin, GGUF) have to be converted by transformers' "
            "save_pretrained first");
  std::filesystem::create_symlink("../blobs/gone", folder.path() + "/model.safetensors");
  EXPECT_EQ(Folder::Without(folder.path(), ReadFolder(folder.path()).status()),
            "F/model.safetensors: it is a link to ../blobs/gone, where there is no file; download "
            "it again");
  std::filesystem::remove(folder.path() + "/model.safetensors");
  folder.config["n_layer"] = 0;
  EXPECT_THAT(folder.Problem(), HasSubstr("F/config.json: n_layer: expected a whole number"));
}

TEST(ReadFolder, TakesTheTokenizersFiles) {
  Folder folder("gpt2");
  const std::string binary("\x0a\xff\x00\x80 sentencepiece", 18);
  folder.Put("tokenizer.model", binary);
  folder.Put("vocab.json", "{}");
  folder.Put("added_tokens.json", "");
  folder.Put("README.md", "text");
  auto weights = folder.Read();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(weights->files,
              ElementsAre(SmallFile{"added_tokens.json", ""}, SmallFile{"tokenizer.model", binary},
                          SmallFile{"vocab.json", "{}"}));
  ASSERT_TRUE(HashTensors(folder.path(), &*weights, nullptr).ok());
  EXPECT_EQ(FromJson(ToJson(*weights)).value(), *weights);
}

TEST(HashTensors, EndsWhenItIsTold) {
  const std::string path = FixtureFolder("qwen3");
  auto weights = ReadFolder(path);
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(HashTensors(path, &*weights, [](uint64_t) { return absl::CancelledError("enough"); }),
            absl::CancelledError("enough"));
}

TEST(HashTensors, NamesEachTensorsBytes) {
  const std::string path = FixtureFolder("qwen3");
  auto weights = ReadFolder(path);
  ASSERT_TRUE(weights.ok());
  std::vector<uint64_t> progress;
  ASSERT_TRUE(HashTensors(path, &*weights, [&](uint64_t bytes) {
                progress.push_back(bytes);
                return absl::OkStatus();
              }).ok());
  const std::string file = ReadFile(path + "/model.safetensors").value();
  uint64_t total = 0;
  for (const Tensor& tensor : weights->tensors) {
    Sha256 hash;
    hash.Update(std::string_view(file).substr(tensor.offset, tensor.bytes));
    EXPECT_EQ(tensor.sha256, hash.HexDigest()) << tensor.name;
    total += tensor.bytes;
  }
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(progress.back(), total);

  weights->tensors[3].file = "none";
  EXPECT_EQ(HashTensors(path, &*weights, nullptr).code(), absl::StatusCode::kDataLoss);
}

TEST(ReadTensor, TellsAChangedByte) {
  Folder folder("gpt2");
  ASSERT_TRUE(folder.Read().ok());
  const Weights weights = Hashed(folder.path());
  const Tensor& tensor = *weights.Find("transformer.h.1.mlp.c_fc.weight");
  ASSERT_TRUE(ReadTensor(folder.path(), tensor).ok());

  std::string file = ReadFile(folder.path() + "/model.safetensors").value();
  file[tensor.offset + tensor.bytes - 1] ^= 1;
  folder.Put("model.safetensors", file);
  const auto changed = ReadTensor(folder.path(), tensor);
  EXPECT_EQ(changed.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Message(changed.status())), HasSubstr("is not what the run began with"));
  EXPECT_TRUE(ReadTensor(folder.path(), *weights.Find("transformer.h.1.mlp.c_fc.bias")).ok());

  Tensor unhashed = tensor;
  unhashed.sha256.clear();
  EXPECT_TRUE(ReadTensor(folder.path(), unhashed).ok());
  folder.Put("model.safetensors", file.substr(0, tensor.offset + tensor.bytes - 1));
  EXPECT_EQ(ReadTensor(folder.path(), unhashed).status().code(), absl::StatusCode::kDataLoss);
  // Sizes that a foreign list promises need no memory.
  for (const uint64_t most : {uint64_t{1} << 61, ~uint64_t{0}}) {
    Tensor huge = unhashed;
    huge.bytes = most;
    EXPECT_EQ(ReadTensor(folder.path(), huge).status().code(), absl::StatusCode::kDataLoss);
    huge.offset = most;
    EXPECT_EQ(ReadTensor(folder.path(), huge).status().code(), absl::StatusCode::kDataLoss);
  }
  std::filesystem::remove(folder.path() + "/model.safetensors");
  EXPECT_EQ(ReadTensor(folder.path(), tensor).status().code(), absl::StatusCode::kNotFound);
}

TEST(WeightsJson, ReadsAsItWasWritten) {
  for (const std::string name : {"gpt2", "gpt2_sharded", "llama2_bf16", "qwen3"}) {
    const Weights weights = Hashed(FixtureFolder(name));
    const std::string text = ToJson(weights);
    const auto read = FromJson(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, weights);
    EXPECT_EQ(ToJson(*read), text);
  }
}

TEST(WeightsJson, ForeignTextsAreRefused) {
  const Json good = Json::parse(ToJson(Hashed(FixtureFolder("gpt2"))));
  ASSERT_TRUE(FromJson(good.dump()).ok());
  const auto refusal = [&](const std::function<void(Json&)>& change) {
    Json json = good;
    change(json);
    const auto weights = FromJson(json.dump());
    EXPECT_EQ(weights.status().code(), absl::StatusCode::kInvalidArgument) << weights.status();
    return std::string(Message(weights.status()));
  };
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), std::string("null"),
        std::string(100'000, '['), R"({"format":)" + std::string(100'000, '[') + "}"}) {
    EXPECT_EQ(FromJson(text).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(refusal([](Json& json) { json["version"] = 3; }),
              HasSubstr("expected version 1 or 2"));
  for (const std::string key : {"format", "version", "config", "tensors", "files"}) {
    refusal([&](Json& json) { json.erase(key); });
    if (key != "tensors") refusal([&](Json& json) { json[key] = Json::array({1}); });
    refusal([&](Json& json) { json[key] = 1.5; });
  }
  for (const auto& [key, unused] : good["tensors"][0].items()) {
    refusal([&](Json& json) { json["tensors"][0].erase(key); });
    refusal([&](Json& json) { json["tensors"][0][key] = nullptr; });
    refusal([&](Json& json) { json["tensors"][0][key] = {{"a", 1}}; });
  }
  const auto tensor = [&](const std::string& key, const Json& value) {
    return refusal([&](Json& json) { json["tensors"][0][key] = value; });
  };
  for (const std::string file : {"../model", "/m", "", "a/b"}) tensor("file", file);
  for (const Json& number : std::vector<Json>{-1, 1.5, 1e300, ~uint64_t{0}, "1", true}) {
    EXPECT_THAT(tensor("offset", number), HasSubstr("do not fit it"));
    EXPECT_THAT(tensor("bytes", number), HasSubstr("do not fit it"));
    EXPECT_THAT(tensor("shape", {number}), HasSubstr("an impossible shape"));
  }
  EXPECT_THAT(tensor("shape", {1u << 31, 1u << 31, 4}), HasSubstr("an impossible shape"));
  EXPECT_THAT(tensor("sha256", "00"), HasSubstr("do not fit it"));
  EXPECT_THAT(tensor("type", "F64"), HasSubstr("do not fit it"));
  refusal([](Json& json) { json["files"] = {{"../x", "YQ=="}}; });
  EXPECT_THAT(refusal([](Json& json) { json["files"] = {{"x", "?"}}; }), HasSubstr("no base64"));
}

// Import and export of a whole model.
TEST(DecodeAndEncode, FixturesComeBackByteForByte) {
  for (const std::string name :
       {"gpt2", "llama2_bf16", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe"}) {
    const std::string path = FixtureFolder(name);
    const Weights weights = Hashed(path);
    const ModelSpec model = ModelOf(weights);
    const auto values = ValuesOf(path, weights);
    const ExportType type =
        name == std::string("llama2_bf16") ? ExportType::kBf16 : ExportType::kFp32;
    for (const model::PlacedParameter& parameter : ParametersOf(model)) {
      const Tensor& tensor = **TensorOf(weights, model, parameter);
      EXPECT_EQ(PublishedShape(parameter.parameter), tensor.shape);
      EXPECT_EQ(Encode(values.at(parameter.Name()), parameter.parameter, type),
                ReadTensor(path, tensor).value())
          << tensor.name;
    }
  }
}

}  // namespace
}  // namespace longhaul::published
