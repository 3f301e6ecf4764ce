#include "run/published/own_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "run/published/export.h"
#include "run/published/weights.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"

namespace longhaul::published {
namespace {

using ::testing::HasSubstr;

ModelSpec TinyLlama() {
  ModelSpec model;
  model.family = ModelFamily::kLlama;
  model.layers = 1;
  model.hidden = 8;
  model.heads = model.kv_heads = 2;
  model.intermediate = 16;
  model.context = 4;
  model.vocabulary = 5;
  return model;
}

// Writes the model with ones, and returns the text of its longhaul.json.
std::string WriteOnes(const std::string& folder, const RanksOfModel& ranks) {
  std::vector<float> ones;
  const Status written = WriteFolder(folder, {.model = TinyLlama(), .ranks = ranks},
                                     [&](const model::PlacedParameter& parameter) {
                                       ones.assign(parameter.parameter.shape.elements(), 1);
                                       return std::span<const float>(ones);
                                     });
  EXPECT_TRUE(written.ok()) << written;
  auto text = ReadFile(folder + "/longhaul.json");
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(OwnFolder, KeepsItsBytes) {
  const testing::TempDir folder;
  const std::string text = WriteOnes(folder.path(), {.count = 4, .shared_channels = 0.75});
  testing::ExpectGolden(GOLDEN_DIR, "longhaul.json", 1, text);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/config.json"));
}

TEST(OwnFolder, IsReadAsThePublishedModelWithItsRanks) {
  const testing::TempDir folder;
  const RanksOfModel ranks = {.count = 2, .shared_channels = 0.25};
  WriteOnes(folder.path(), ranks);
  const auto weights = ReadFolder(folder.path());
  ASSERT_TRUE(weights.ok()) << weights.status();
  const auto config = ParseConfig(weights->config_json, "longhaul.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ranks, ranks);
  EXPECT_EQ(config->model.hidden, 8u);
  EXPECT_EQ(config->model.vocabulary, 5u);
  EXPECT_EQ(RanksIn(weights->config_json).value(), ranks);
  const std::string within = ConfigWithin(weights->config_json);
  EXPECT_EQ(ParseConfig(within, "config.json")->model, config->model);
  EXPECT_EQ(RanksIn(within).value(), RanksOfModel());
  EXPECT_EQ(ConfigWithin(within), within);
  // An export of a run that began with it.
  EXPECT_EQ(WriteConfig(config->model, ExportType::kFp32, weights->config_json).value(), within);
  // What the coordinator stores of it says so, too.
  Weights listed = *weights;
  ASSERT_TRUE(HashTensors(folder.path(), &listed, {}).ok());
  EXPECT_EQ(RanksIn(FromJson(ToJson(listed))->config_json).value(), ranks);
}

TEST(OwnFolder, RefusesWhatIsNotOfItsForm) {
  const std::string good = WriteOwnFile(
      {.ranks = {.count = 2, .shared_channels = 0.5}, .config_json = R"({"model_type": "llama"})"});
  ASSERT_TRUE(ParseOwnFile(good, "f").ok());
  const auto refusal = [&](std::string_view part, std::string_view other) {
    std::string text = good;
    const size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    text.replace(at, part.size(), other);
    const auto parsed = ParseOwnFile(text, "f");
    return parsed.ok() ? "no error" : std::string(Message(parsed.status()));
  };
  EXPECT_THAT(refusal("\"version\": 1", "\"version\": 2"), HasSubstr("expected version 1, got 2"));
  EXPECT_THAT(refusal("\"tensor\": 2", "\"tensor\": 1"), HasSubstr("group.tensor from 2"));
  EXPECT_THAT(refusal("\"tensor\": 2", "\"tensor\": -2"), HasSubstr("group.tensor from 2"));
  EXPECT_THAT(refusal("\"p\": 0.5", "\"p\": 1"), HasSubstr("group.p from 0, below 1"));
  EXPECT_THAT(refusal("\"p\": 0.5", "\"p\": null"), HasSubstr("group.p from 0, below 1"));
  EXPECT_THAT(refusal("\"p\": 0.5", "\"q\": 0.5"), HasSubstr("group with tensor and p"));
  EXPECT_THAT(refusal("\"version\": 1", "\"version\": 1, \"more\": 1"), HasSubstr("expected"));
  for (const char* other : {"", "[]", "{\"format\": 1}", "{\"model_type\": \"llama\"}"}) {
    const auto parsed = ParseOwnFile(other, "f");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_FALSE(parsed->has_value());
  }
}

}  // namespace
}  // namespace longhaul::published
