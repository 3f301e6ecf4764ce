#include "run/data/data_set.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace longhaul::data {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr uint64_t kChunk = 4096;

std::string Hashes(uint64_t bytes, char digit = 'a') {
  std::string chunks;
  for (uint64_t at = 0; at < bytes; at += kChunk) chunks += std::string(64, digit);
  return chunks;
}

Json ShardJson(const std::string& name, uint64_t tokens, bool mask = false) {
  Json shard = {
      {"file", name + ".bin"}, {"offset", 0}, {"tokens", tokens}, {"chunks", Hashes(tokens * 2)}};
  if (mask) {
    shard["mask"] = {{"file", name + ".mask"}, {"chunks", Hashes((tokens + 7) / 8, 'b')}};
  }
  return shard;
}

Json SetJson(bool masks = false) {
  return {{"format", "longhaul data set"},
          {"version", 1},
          {"tokenizer", {{"name", "a/b"}, {"files", Json::array({"tokenizer.json"})}}},
          {"end_token", 7},
          {"vocabulary", 1000},
          {"bytes_per_token", 2},
          {"packed", 0},
          {"chunk_bytes", kChunk},
          {"documents", 3},
          {"training",
           {ShardJson("training-00000", 5000, masks), ShardJson("training-00001", 1, masks)}},
          {"validation", {ShardJson("validation-00000", 300, masks)}}};
}

std::string ErrorOf(const Json& json) {
  const auto set = ParseDataSet(json.dump());
  return set.ok() ? "none" : std::string(Message(set.status()));
}

Source SourceOf(const std::string& folder, const Json& json = SetJson()) {
  return {.folder = folder, .weight = 1, .set = ParseDataSet(json.dump()).value()};
}

TEST(ParseDataSet, ReadsWhatTheManifestSays) {
  const DataSet set = ParseDataSet(SetJson(true).dump()).value();
  EXPECT_EQ(set.tokenizer, "a/b");
  EXPECT_EQ(set.vocabulary, 1000);
  EXPECT_EQ(set.bytes_per_token, 2);
  EXPECT_EQ(set.end_token, 7);
  EXPECT_EQ(set.chunk_bytes, kChunk);
  EXPECT_EQ(set.training.tokens(), 5001);
  EXPECT_EQ(set.validation.tokens(), 300);
  ASSERT_EQ(set.training.shards.size(), 2);
  const Shard& shard = set.training.shards[0];
  EXPECT_EQ(shard.ids.file, "training-00000.bin");
  EXPECT_EQ(shard.ids.bytes, 10000);
  EXPECT_EQ(shard.ids.ChunkCount(), 3);
  EXPECT_EQ(shard.ids.ChunkSha256(2), std::string(64, 'a'));
  EXPECT_EQ(shard.mask->bytes, 625);
  EXPECT_TRUE(set.has_masks());
  EXPECT_FALSE(ParseDataSet(SetJson().dump())->has_masks());
}

TEST(ParseDataSet, ReadyTokenFilesHaveNoTokenizerAndPerhapsNoEnd) {
  Json json = SetJson();
  json["tokenizer"] = nullptr;
  json["end_token"] = nullptr;
  json["training"][0]["file"] = "linked/tokens.bin";
  json["training"][0]["offset"] = 1024;
  const DataSet set = ParseDataSet(json.dump()).value();
  EXPECT_EQ(set.tokenizer, "");
  EXPECT_EQ(set.end_token, std::nullopt);
  EXPECT_EQ(set.training.shards[0].ids.offset, 1024);
}

Json PairsJson() {
  Json json = SetJson(true);
  json["version"] = 2;
  json["pairs"] = 40;
  json["packed"] = 64;
  return json;
}

// An older program refuses a set of pairs by its version.
TEST(ParseDataSet, PairsHaveAVersionOfTheirOwn) {
  const DataSet set = ParseDataSet(PairsJson().dump()).value();
  EXPECT_EQ(set.pairs, 40);
  EXPECT_EQ(ParseDataSet(SetJson().dump())->pairs, std::nullopt);
  Json json = PairsJson();
  json["version"] = 1;
  EXPECT_THAT(ErrorOf(json), HasSubstr("expected pairs in version 2 alone"));
  json = PairsJson();
  json.erase("pairs");
  EXPECT_THAT(ErrorOf(json), HasSubstr("expected pairs in version 2 alone"));
  json = PairsJson();
  json["packed"] = 0;
  EXPECT_THAT(ErrorOf(json), HasSubstr("not packed"));
}

TEST(CheckPairs, SetsOfPairsAndRunsOnPreferencesGoTogether) {
  const Mixture pairs{{SourceOf("/pairs", PairsJson())}}, plain{{SourceOf("/plain")}};
  EXPECT_TRUE(CheckPairs(pairs, true).ok());
  EXPECT_TRUE(CheckPairs(plain, false).ok());
  EXPECT_THAT(std::string(Message(CheckPairs(plain, true))),
              HasSubstr("/plain: it has no pairs of answers"));
  EXPECT_THAT(std::string(Message(CheckPairs(pairs, false))),
              HasSubstr("/pairs: it has pairs of a chosen and a rejected answer"));
  EXPECT_EQ(MixtureFromJson(ToJson(pairs)).value(), pairs);
}

TEST(ParseDataSet, WhatIsWrongIsNamed) {
  const auto changed = [](const auto& change) {
    Json json = SetJson(true);
    change(json);
    return ErrorOf(json);
  };
  EXPECT_EQ(changed([](Json&) {}), "none");
  EXPECT_THAT(changed([](Json& json) { json["format"] = "x"; }), HasSubstr("longhaul data set"));
  EXPECT_THAT(changed([](Json& json) { json["version"] = 3; }),
              HasSubstr("expected version 1 or 2"));
  EXPECT_THAT(changed([](Json& json) { json["bytes_per_token"] = 3; }),
              HasSubstr("expected 2 or 4"));
  EXPECT_THAT(changed([](Json& json) { json["vocabulary"] = 0; }), HasSubstr("vocabulary is 0"));
  EXPECT_THAT(changed([](Json& json) { json["vocabulary"] = 4294967295u; }),
              HasSubstr("vocabulary is"));
  EXPECT_THAT(changed([](Json& json) { json["chunk_bytes"] = 100; }), HasSubstr("got 100"));
  EXPECT_THAT(changed([](Json& json) { json["chunk_bytes"] = 4100; }), HasSubstr("got 4100"));
  EXPECT_THAT(changed([](Json& json) { json.erase("training"); }), HasSubstr("training"));
  EXPECT_THAT(
      changed([](Json& json) { json["training"][0]["tokens"] = 9000; }),
      HasSubstr("training-00000.bin has 18000 bytes and hashes of 192 digits, expected 320"));
  EXPECT_THAT(changed([](Json& json) { json["training"][0]["tokens"] = uint64_t{1} << 63; }),
              HasSubstr("too many tokens"));
  EXPECT_THAT(changed([](Json& json) { json["training"][1]["file"] = "../secret"; }),
              HasSubstr("'../secret' is no file of it"));
  for (const char* file : {"/etc/shadow", "a/../../b", "a//b", "a/", "./a", "..", "a/..", "/"}) {
    EXPECT_THAT(changed([&](Json& json) { json["training"][1]["file"] = file; }),
                HasSubstr("is no file of it"))
        << file;
    EXPECT_THAT(changed([&](Json& json) { json["validation"][0]["mask"]["file"] = file; }),
                HasSubstr("is no file of it"))
        << file;
  }
  const std::string zero("a\0b", 3);
  EXPECT_THAT(changed([&](Json& json) { json["training"][1]["file"] = zero; }),
              HasSubstr("is no file of it"));
  EXPECT_EQ(changed([](Json& json) { json["training"][1]["file"] = "a/..b/c..d"; }), "none");
  EXPECT_THAT(changed([](Json& json) { json["training"][1]["file"] = ""; }),
              HasSubstr("is no file"));
  EXPECT_THAT(changed([](Json& json) { json["training"][1]["chunks"] = std::string(64, 'z'); }),
              HasSubstr("the hash of chunk 0 of training-00001.bin is none"));
  EXPECT_THAT(changed([](Json& json) { json["validation"][0]["mask"]["chunks"] = ""; }),
              HasSubstr("validation-00000.mask has 38 bytes"));
  for (const std::string_view text : {"", "[]", "null", "{", "{\"format\": 1}"}) {
    EXPECT_FALSE(ParseDataSet(text).ok()) << text;
  }
}

TEST(CheckFolders, AListIsOfTheFoldersOfTheRunFile) {
  EXPECT_TRUE(CheckFolders(FoldersOf({{SourceOf("/a"), SourceOf("/b")}}), {"/a", "/b"}).ok());
  EXPECT_THAT(
      std::string(Message(CheckFolders({"/a", "/etc"}, {"/a", "/b"}))),
      HasSubstr("expected a list of the data set in /b, as data.sets has it, got one of /etc"));
  EXPECT_THAT(std::string(Message(CheckFolders({"/b", "/a"}, {"/a", "/b"}))), HasSubstr("in /a"));
  EXPECT_THAT(std::string(Message(CheckFolders({"/a"}, {"/a", "/b"}))),
              HasSubstr("expected a list of 2 data sets, as data.sets has them, got one of 1"));
  EXPECT_FALSE(CheckFolders({}, {"/a"}).ok());
}

TEST(CheckMixture, SaysAllThatIsWrongAtOnce) {
  Json other = SetJson(true);
  other["vocabulary"] = 2000;
  other["end_token"] = 9;
  other["packed"] = 64;
  Mixture mixture{{SourceOf("/a"), SourceOf("/b", other), SourceOf("/a")}};
  mixture.sources[2].weight = 0;
  mixture.sources[2].set.training.shards.resize(0);
  const std::string problems(Message(CheckMixture(mixture, 32, /*by_documents=*/true)));
  for (const char* part :
       {"/b: its vocabulary is 2000, and that of /a is 1000", "/b: of /b and /a one has loss masks",
        "/b: its documents end with the token 9, and those of /a with 7",
        "/b: it was packed for a context of 64, and model.context is 32", "/a: it is there twice",
        "/a: expected a weight above 0, got 0",
        "/a: its 0 tokens are less than one window of 33"}) {
    EXPECT_THAT(problems, HasSubstr(part));
  }
  EXPECT_TRUE(CheckMixture({{SourceOf("/a"), SourceOf("/b")}}, 32, true).ok());
  EXPECT_THAT(std::string(Message(CheckMixture({}, 32))), HasSubstr("at least one data set"));
  Mixture many;
  for (size_t k = 0; k <= Mixture::kMostSources; ++k) {
    many.sources.push_back(SourceOf(fmt::format("/{}", k)));
  }
  EXPECT_EQ(Message(CheckMixture(many, 32)),
            "expected at most 1024 data sets, got 1025; join some of them");
  many.sources.pop_back();
  EXPECT_TRUE(CheckMixture(many, 32).ok());
}

TEST(CheckMixture, DocumentsNeedAnEndTokenOnlyWhereTheyAreAsked) {
  Json json = SetJson();
  json["end_token"] = nullptr;
  const Mixture mixture{{SourceOf("/a", json)}};
  EXPECT_TRUE(CheckMixture(mixture, 32).ok());
  EXPECT_THAT(std::string(Message(CheckMixture(mixture, 32, true))), HasSubstr("--end-token"));
}

// Where the end token stands inside documents too, a reader that looks for it would cut them.
TEST(CheckMixture, DocumentsWhoseEndTokenStandsInsideAreRefusedWhereTheyAreAsked) {
  Json chats = SetJson();
  chats["ends_inside"] = 12;
  const Mixture mixture{{SourceOf("/chats", chats)}};
  EXPECT_TRUE(CheckMixture(mixture, 64).ok());
  EXPECT_THAT(std::string(Message(CheckMixture(mixture, 64, /*by_documents=*/true))),
              HasSubstr("/chats: its end token 7 also stands inside documents (12 times)"));
}

TEST(CheckMixture, SetsOfTwoTokenizersAreRefusedAndNamed) {
  const auto with = [](const std::string& name, char digit) {
    Json json = SetJson();
    json["tokenizer"]["name"] = name;
    json["tokenizer"]["sha256"] = std::string(64, digit);
    return json;
  };
  Mixture mixture{{SourceOf("/a", with("one", '1')), SourceOf("/b", with("other", '1'))}};
  EXPECT_TRUE(CheckMixture(mixture, 64).ok());  // one file under two names
  mixture.sources[1] = SourceOf("/b", with("other", '2'));
  EXPECT_THAT(std::string(Message(CheckMixture(mixture, 64))),
              HasSubstr("/b: its tokenizer other is another one than one of /a"));
  mixture.sources[1] = SourceOf("/b");  // unknown, as of older sets
  EXPECT_TRUE(CheckMixture(mixture, 64).ok());
}

TEST(CheckMixture, ASetWithoutTargetsTeachesNothing) {
  Json json = SetJson(true);
  json["targets"] = 0;
  EXPECT_THAT(std::string(Message(CheckMixture({{SourceOf("/a", json)}}, 64))),
              HasSubstr("/a: the loss counts on none of its tokens"));
  json["targets"] = 1;
  EXPECT_TRUE(CheckMixture({{SourceOf("/a", json)}}, 64).ok());
}

TEST(Mixture, ReadsAsItWasWritten) {
  Mixture mixture{{SourceOf("/a \"b\"", SetJson(true)), SourceOf("http://h/c")}};
  mixture.sources[1].weight = 0.1;
  mixture.sources[1].set.end_token = std::nullopt;
  mixture.sources[1].set.ends_inside = 3;
  mixture.sources[1].set.targets = 4;
  mixture.sources[1].set.tokenizer_sha256 = std::string(64, 'c');
  const std::string text = ToJson(mixture);
  EXPECT_EQ(MixtureFromJson(text).value(), mixture);
  EXPECT_EQ(ToJson(MixtureFromJson(text).value()), text);
}

TEST(Mixture, ForeignTextsAreRefused) {
  const std::string text = ToJson({{SourceOf("/a")}});
  EXPECT_FALSE(MixtureFromJson("").ok());
  EXPECT_FALSE(MixtureFromJson(SetJson().dump()).ok());
  EXPECT_FALSE(MixtureFromJson(ToJson(Mixture{})).ok());
  for (size_t cut = 0; cut < text.size(); cut += 7) {
    EXPECT_FALSE(MixtureFromJson(text.substr(0, cut)).ok()) << cut;
  }
}

}  // namespace
}  // namespace longhaul::data
