// What config.json says of sliding windows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "run/published/config.h"
#include "tests/unit/run/published/config_fixtures.h"

namespace longhaul::published {
namespace {

using ::testing::HasSubstr;
using Keys = std::vector<std::pair<std::string, Json>>;

// The window of each layer; 0: none.
std::vector<uint32_t> WindowsOf(const std::string& text) {
  const ModelSpec model = MustParse(text).model;
  std::vector<uint32_t> windows;
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    windows.push_back(model.HasWindow(layer) ? model.window : 0);
  }
  return windows;
}
std::vector<uint32_t> WindowsOf(const std::string& folder, const Keys& keys) {
  return WindowsOf(With(folder, keys));
}
using Layers = std::vector<uint32_t>;

// "fsf": full, sliding, full.
Json Types(const std::string& letters) {
  Json types = Json::array();
  for (const char letter : letters) {
    types.push_back(letter == 's' ? "sliding_attention" : "full_attention");
  }
  return types;
}

TEST(Windows, OfAllLayers) {
  EXPECT_EQ(WindowsOf("mistral", {{"sliding_window", 8}}), (Layers{8, 8, 8}));
  EXPECT_EQ(WindowsOf("mistral", {{"sliding_window", nullptr}}), (Layers{0, 0, 0}));
  EXPECT_EQ(WindowsOf(Without("mistral", {"sliding_window"})), (Layers{4096, 4096, 4096}));
  // With a list transformers takes the model for another type, whose layers obey it.
  EXPECT_EQ(WindowsOf("mistral", {{"sliding_window", 8}, {"layer_types", Types("fsf")}}),
            (Layers{0, 8, 0}));
  EXPECT_EQ(WindowsOf("phi3", {{"sliding_window", 8}, {"layer_types", Types("fff")}}),
            (Layers{8, 8, 8}));
  EXPECT_EQ(WindowsOf(Without("phi3", {"sliding_window"})), (Layers{0, 0, 0}));
  EXPECT_EQ(WindowsOf("mixtral", {{"sliding_window", 16}}), (Layers{16, 16}));
  // Llama's layers have none, whatever the file says.
  EXPECT_EQ(WindowsOf("llama2", {{"sliding_window", 8}}), (Layers{0, 0, 0}));
}

TEST(Windows, OfQwenWhereItSaysSo) {
  const std::pair<std::string, Json> use = {"use_sliding_window", true};
  for (const std::string folder : {"qwen2_5", "qwen3"}) {
    EXPECT_EQ(WindowsOf(folder, {{"sliding_window", 8}, {"layer_types", Types("fsf")}}),
              (Layers{0, 0, 0}));
    EXPECT_EQ(WindowsOf(folder, {use, {"sliding_window", 8}, {"layer_types", Types("fss")}}),
              (Layers{0, 8, 8}));
    EXPECT_EQ(WindowsOf(folder, {use, {"sliding_window", 8}, {"layer_types", Types("fff")}}),
              (Layers{0, 0, 0}));
    // Without names: layers from max_window_layers on, of three.
    const std::pair<std::string, Json> none = {"layer_types", nullptr};
    const auto from = [&](Json layer) {
      return Keys{use, none, {"sliding_window", 8}, {"max_window_layers", std::move(layer)}};
    };
    EXPECT_EQ(WindowsOf(folder, from(2)), (Layers{0, 0, 8}));
    EXPECT_EQ(WindowsOf(folder, from(0)), (Layers{8, 8, 8}));
    EXPECT_EQ(WindowsOf(folder, from(3)), (Layers{0, 0, 0}));
    EXPECT_EQ(WindowsOf(folder, {use, none, {"sliding_window", nullptr}}), (Layers{0, 0, 0}));
    EXPECT_THAT(Refusal(With(folder, from("all"))), HasSubstr("expected a whole number, got"));
  }
  Json absent = Json::parse(Without("qwen3", {"sliding_window", "layer_types"}));
  absent["use_sliding_window"] = true;
  absent["max_window_layers"] = 0;
  EXPECT_EQ(MustParse(absent.dump()).model.window, 4096u);

  EXPECT_EQ(WindowsOf("qwen3_moe", {{"sliding_window", 16}}), (Layers{0, 0}));
  EXPECT_EQ(WindowsOf("qwen3_moe", {use, {"sliding_window", 16}}), (Layers{16, 16}));
  EXPECT_EQ(WindowsOf("qwen2_moe", {use, {"sliding_window", 16}, {"layer_types", Types("sf")}}),
            (Layers{16, 0}));
  EXPECT_THAT(Refusal(With("qwen2_moe", {use, {"sliding_window", 16}, {"layer_types", nullptr}})),
              HasSubstr("differs between versions of transformers"));
}

TEST(Windows, OfGemmaWhereNoListSaysIt) {
  EXPECT_EQ(WindowsOf("gemma2", {{"layer_types", nullptr}}), (Layers{7, 0, 7, 0}));
  EXPECT_EQ(WindowsOf("gemma3", {{"layer_types", nullptr}}), (Layers{7, 7, 0}));
  Json older = Json::parse(Without("gemma3", {"layer_types"}));
  older["sliding_window_pattern"] = 2;
  EXPECT_EQ(WindowsOf(older.dump()), (Layers{7, 0, 7}));
  older.erase("sliding_window_pattern");  // then it is 6
  EXPECT_EQ(WindowsOf(older.dump()), (Layers{7, 7, 7}));
  EXPECT_EQ(WindowsOf("gemma3", {{"layer_types", Types("fss")}}), (Layers{0, 7, 7}));
}

TEST(Windows, ListsThatAreRefused) {
  const auto refusal = [](Json types) {
    return Refusal(With("gemma2", {{"layer_types", std::move(types)}}));
  };
  EXPECT_THAT(refusal("full_attention"), HasSubstr("expected a list, got \"full_attention\""));
  EXPECT_THAT(refusal(Types("sf")), HasSubstr("expected a list of 4 names, one for each layer, g"));
  Json other = Types("sfsf");
  other[1] = "chunked_attention";
  EXPECT_THAT(refusal(other), HasSubstr("got \"chunked_attention\""));
  EXPECT_THAT(refusal(Types("sffs")), HasSubstr("this list is another"));
}

TEST(Windows, AreWrittenAsTheyAreRead) {
  for (const std::string folder : {"mistral", "qwen2_5", "qwen3", "phi3", "gemma2", "gemma3"}) {
    for (const uint32_t from : {0u, 1u}) {
      for (const uint32_t every : {0u, 2u, 3u}) {
        ModelSpec model = OfFixture(folder);
        model.window = 5;
        model.window_from = from;
        model.full_every = every;
        const bool possible = folder != "phi3" || (from == 0 && every == 0);
        const auto text = WriteConfig(model, ExportType::kFp32, "");
        ASSERT_EQ(text.ok(), possible) << folder << " " << text.status();
        if (!possible) continue;
        const ModelSpec read = MustParse(*text).model;
        for (uint32_t layer = 0; layer < model.layers; ++layer) {
          EXPECT_EQ(read.HasWindow(layer), model.HasWindow(layer)) << *text;
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::published
