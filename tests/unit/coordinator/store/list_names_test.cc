// Lists of blobs are read as a stream, whatever is in them.
#include "coordinator/store/list_names.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "run/data/data_set.h"
#include "run/published/weights.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StatusOr<ListNames> NamesIn(const std::string& text) {
  std::istringstream json(text);
  return ReadListNames(json);
}

std::vector<std::string> BlobsOf(const ListNames& names) {
  std::vector<std::string> blobs;
  for (size_t i = 0; i < names.size(); ++i) {
    blobs.push_back(absl::BytesToHexString(std::string(names.name(i))));
  }
  return blobs;
}

std::string ErrorOf(const std::string& text) {
  return std::string(Message(NamesIn(text).status()));
}

data::Source SetWith(const std::string& folder, const std::string& chunks) {
  data::Source source{.folder = folder, .weight = 1, .set = {}};
  source.set.vocabulary = 256;
  source.set.chunk_bytes = 4096;
  source.set.training.shards = {
      {.tokens = 4096,
       .ids = {.file = "ä \"b\".bin", .offset = 0, .bytes = 8192, .chunks = chunks},
       .mask = {}}};
  return source;
}

TEST(ListNamesTest, AMixtureNamesItsChunksInTheirOrder) {
  const std::string one = Sha256Hex("1"), two = Sha256Hex("2"), three = Sha256Hex("3");
  const auto names =
      NamesIn(data::ToJson({.sources = {SetWith("/a", one + two), SetWith("/b", three + one),
                                        SetWith("https://files.example/set", one + three)}}));
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(BlobsOf(*names), ElementsAre(one, two, three, one));
  EXPECT_THAT(names->folders, ElementsAre("/a", "/b", "https://files.example/set"));
  EXPECT_THAT(names->objects, ElementsAre("https://files.example/set/%C3%A4%20%22b%22.bin"));
}

TEST(ListNamesTest, AModelNamesItsTensors) {
  const std::string one = Sha256Hex("1"), adapter = Sha256Hex("2");
  published::Weights weights{.config_json = "{}", .tensors = {}, .files = {}};
  weights.tensors = {{.name = "w",
                      .type = "F32",
                      .shape = {2},
                      .file = "m",
                      .offset = 0,
                      .bytes = 8,
                      .sha256 = one},
                     {.name = "base_model.model.w",
                      .type = "F32",
                      .shape = {2},
                      .file = "m",
                      .offset = 0,
                      .bytes = 8,
                      .sha256 = adapter}};
  weights.files = {{.name = "tokenizer.json", .contents = std::string(1 << 20, 'x')}};
  const auto names = NamesIn(published::ToJson(weights));
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(BlobsOf(*names), ::testing::UnorderedElementsAre(one, adapter));
  EXPECT_THAT(names->folders, IsEmpty());
}

// A hash that stands elsewhere gives nobody a right.
TEST(ListNamesTest, OnlyTheirPlacesCount) {
  const std::string hash = Sha256Hex("somebody's");
  for (const std::string& text :
       {fmt::format(R"({{"format": "longhaul mixture", "sources": ["{}"], "chunks": "{}"}})", hash,
                    hash),
        fmt::format(R"({{"format": "longhaul mixture", "sources": [{{"chunks": "{}"}}]}})", hash),
        fmt::format(R"({{"format": "longhaul mixture", "tensors": [{{"sha256": "{}"}}]}})", hash),
        fmt::format(R"({{"format": "longhaul weights", "files": {{"a": "{}"}}, "tensors": []}})",
                    hash)}) {
    const auto names = NamesIn(text);
    ASSERT_TRUE(names.ok()) << names.status();
    EXPECT_EQ(names->size(), 0u) << text;
  }
}

TEST(ListNamesTest, WhatIsNoListIsRefusedWithItsPlace) {
  EXPECT_THAT(ErrorOf("a text"), HasSubstr("not JSON at byte"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("expected a list of data sets"));
  EXPECT_THAT(ErrorOf(R"({"format": "longhaul mixture"} x)"), HasSubstr("not JSON at byte 31"));
  EXPECT_THAT(ErrorOf(R"({"format": "longhaul mixture)"), HasSubstr("the end of a text"));
  EXPECT_THAT(ErrorOf(R"({"a": [1, 2})"), HasSubstr("',' or ']'"));
  EXPECT_THAT(ErrorOf(R"({"a": "\ud800"})"), HasSubstr("second half"));
  EXPECT_THAT(ErrorOf(R"({"a": "\x"})"), HasSubstr("an escape"));
  EXPECT_THAT(ErrorOf(std::string(1000, '[')), HasSubstr("within each other"));
  EXPECT_THAT(
      ErrorOf(R"({"format": "longhaul mixture", "sources": [{"training": [{"chunks": "12"}]}]})"),
      HasSubstr("cut off"));
  EXPECT_THAT(ErrorOf(R"({"format": "longhaul weights", "tensors": [{"sha256": "12"}]})"),
              HasSubstr("is none"));
}

TEST(ListNamesTest, ItIsBounded) {
  std::string many = "[0";
  for (size_t i = 0; i < kMostListValues; ++i) many += ",0";
  EXPECT_THAT(ErrorOf(many + "]"), HasSubstr("more than 1000000 values"));
  const std::string chunk = Sha256Hex("1");
  std::string chunks;
  chunks.reserve(kMostListBytes + 64);
  while (chunks.size() <= kMostListBytes) chunks += chunk;
  const std::string list = R"({"sources": [{"training": [{"chunks": ")" + chunks + R"("}]}]})";
  EXPECT_THAT(ErrorOf(list), HasSubstr("its names have more than"));
  // Files of a tokenizer have a limit of their own.
  const std::string files = R"({"format": "longhaul weights", "files": {"t": ")" +
                            std::string(kMostListBytes + 1, 'x') + R"("}})";
  EXPECT_TRUE(NamesIn(files).ok()) << NamesIn(files).status();
}

}  // namespace
}  // namespace longhaul::coordinator
