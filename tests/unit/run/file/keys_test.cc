// The table of run-file keys, and what comes out of it.
#include "run/file/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "run/file/key_reference.h"
#include "tests/unit/run/file/run_texts.h"

namespace longhaul::config {
namespace {

using ::testing::HasSubstr;

const Key& Find(std::string_view path) {
  const auto it = std::ranges::find(Keys(), path, &Key::path);
  EXPECT_NE(it, Keys().end()) << path;
  return *it;
}

RunSpec Parsed(std::string_view yaml, const std::vector<std::string>& overrides = {}) {
  const auto spec = ParseRunSpec(yaml, "run.yaml", overrides);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

TEST(Keys, EachHasASentenceAndAPathOfItsOwn) {
  std::set<std::string> paths;
  for (const Key& key : Keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    ASSERT_FALSE(key.doc.empty()) << key.path;
    EXPECT_NE(key.doc.back(), '.') << key.path;
    EXPECT_EQ(key.doc.find_first_of("|\n"), std::string::npos) << key.path;
    EXPECT_EQ(key.value.field == nullptr, key.value.section != nullptr) << key.path;
  }
}

// A short form (model.preset, group.collective) is written as what it stands for.
TEST(Keys, AWrittenRunFileSaysEachKeyOrHasItAsAComment) {
  for (const std::string_view yaml : {kMinimal, kEveryKey}) {
    const std::string text = ToYaml(Parsed(yaml));
    for (const KeyNode& section : KeyTree().children) {
      const std::string name(section.name);
      EXPECT_THAT("\n" + text,
                  ::testing::AnyOf(HasSubstr("\n" + name + ":"), HasSubstr("\n# " + name + ":")));
    }
    for (const char* key :
         {"  slices: ", "  encrypt: auto", "  replicas: 1", "  recompute: ", "  clean: ",
          "  at_start: ", "  deterministic: ", "  on_nonfinite: ", "    moments: ", "  at_end: ",
          "  dtype: ", "  placement: auto", "  tensor: 1", "  # chosen:", "# replay:"}) {
      EXPECT_THAT(text, HasSubstr(key));
    }
  }
  EXPECT_THAT(ToYaml(Parsed(kMinimal)), HasSubstr("\n    # momentum:\n"));
  EXPECT_THAT(ToYaml(Parsed(kEveryKey)), HasSubstr("\n    momentum: 0.9\n"));
  EXPECT_THAT(ToYaml(Parsed(kMinimal)), HasSubstr("\n  # kv_heads:\n"));
}

// A key that the copy forgets would be taken for unchanged for ever.
TEST(Keys, WhatAffectsSomethingIsAllOfTheSpecThatKeysSay) {
  const RunSpec spec = Parsed(kEveryKey);
  RunSpec copy;
  for (const Key* key : ComparedKeys()) key->value.copy(spec, &copy);
  EXPECT_EQ(copy, spec);
}

TEST(Keys, TimeoutsAndPlacementMeasureNothingAnew) {
  const RunSpec spec = Parsed(kMinimal);
  const auto same = [&](const std::string& override) {
    return OnlyWhatAffects(kTiming, Parsed(kMinimal, {override})) == OnlyWhatAffects(kTiming, spec);
  };
  for (const char* override :
       {"session_timeout=20s", "reattach_timeout=20s", "peer_timeout=20s", "links.encrypt=off",
        "pipeline.placement=names", "train.optimizer.weight_decay=0", "name=other"}) {
    EXPECT_TRUE(same(override)) << override;
  }
  for (const char* override :
       {"model.hidden=128", "train.dtype=bf16", "train.optimizer.moments=bf16",
        "pipeline.recompute=stage", "pipeline.slices=2", "links.forward=none", "group.tensor=2"}) {
    EXPECT_FALSE(same(override)) << override;
  }
}

TEST(Keys, TextsAreThoseOfTheFile) {
  const RunSpec spec = Parsed(kEveryKey);
  EXPECT_EQ(TextOf(Find("train.optimizer.betas"), spec), "[0.8, 0.97]");
  EXPECT_EQ(TextOf(Find("train.lora"), spec), "left out");
  RunSpec adapted = spec;
  adapted.model.lora = LoraSpec{.rank = 8, .alpha = 16, .targets = {"q_proj"}};
  const std::string text =
      "{ rank: 8, alpha: 16, targets: [\"q_proj\"], rslora: false, dropout: 0, "
      "quantize_base: none }";
  EXPECT_EQ(TextOf(Find("train.lora"), adapted), text);
  // Where adapters come from makes no other run.
  adapted.weights.adapters = "folder";
  EXPECT_EQ(TextOf(Find("train.lora"), adapted), text);
}

TEST(Keys, ThePageIsGenerated) {
  std::ifstream file(LONGHAUL_SOURCE_DIR "/docs/guide/run_file_keys.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), KeyPage())
      << "write the page anew: longhaul keys > docs/guide/run_file_keys.md";
}

TEST(Keys, TheSchemaDescribesEachKey) {
  const auto schema = nlohmann::json::parse(KeySchema());
  for (const Key& key : Keys()) {
    const nlohmann::json* node = &schema;
    std::stringstream path(key.path);
    for (std::string name; std::getline(path, name, '.');) {
      if (node->contains("anyOf")) node = &(*node)["anyOf"][1];
      ASSERT_TRUE(node->contains("properties") && (*node)["properties"].contains(name)) << key.path;
      node = &(*node)["properties"][name];
    }
    EXPECT_EQ((*node)["description"], key.doc);
    EXPECT_GE(node->size(), 2u) << key.path << " has no type";
  }
  // A file has steps or epochs.
  EXPECT_EQ(schema["properties"]["train"]["required"], nlohmann::json::array({"microbatches"}));
}

}  // namespace
}  // namespace longhaul::config
