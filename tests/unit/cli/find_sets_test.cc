#include "cli/find_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/hash.h"
#include "cli/model_source.h"
#include "tests/support/temp_dir.h"

namespace longhaul::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kTokenizer =
    R"({"model": {"vocab": {"a": 0, "b": 1}}, "version": "1.0"})";
// The same, as another program writes it.
constexpr std::string_view kRewritten =
    "{\"version\":\"1.0\",\n\"model\":{\"vocab\":{\"b\":1,\"a\":0}}}\n";
constexpr std::string_view kOther = R"({"model": {"vocab": {"b": 0, "a": 1}}, "version": "1.0"})";

data::Source SetWith(const testing::TempDir& folder, std::string_view tokenizer) {
  const std::string place = folder.path() + "/tokenizer";
  std::filesystem::create_directory(place);
  EXPECT_TRUE(WriteFileAtomic(place + "/tokenizer.json", tokenizer).ok());
  data::Source source{.folder = folder.path(), .weight = 1, .set = {}};
  source.set.tokenizer = "of-the-set";
  source.set.tokenizer_sha256 = Sha256Hex(tokenizer);
  return source;
}

published::Weights ModelWith(std::string_view tokenizer) {
  published::Weights weights;
  weights.files = {{.name = "tokenizer.json", .contents = std::string(tokenizer)}};
  return weights;
}

TEST(CheckTokenizers, TheSetsTokensAreTheModels) {
  const testing::TempDir folder;
  const data::Mixture mixture{{SetWith(folder, kTokenizer)}};
  EXPECT_TRUE(CheckTokenizers(mixture, ModelWith(kTokenizer), "/m").ok());
  EXPECT_TRUE(CheckTokenizers(mixture, ModelWith(kRewritten), "/m").ok());
  // As many tokens, and other words.
  EXPECT_THAT(std::string(Message(CheckTokenizers(mixture, ModelWith(kOther), "/m"))),
              AllOf(HasSubstr("its tokenizer of-the-set is not that of the model in /m"),
                    HasSubstr("--tokenizer /m")));
}

TEST(CheckTokenizers, WhatIsNotKnownIsNotChecked) {
  const testing::TempDir folder;
  data::Mixture mixture{{SetWith(folder, kTokenizer)}};
  EXPECT_TRUE(CheckTokenizers(mixture, {}, "/m").ok());
  mixture.sources[0].set.tokenizer_sha256.clear();
  EXPECT_TRUE(CheckTokenizers(mixture, ModelWith(kOther), "/m").ok());
  // A set whose copy is gone has its hash.
  mixture = {{SetWith(folder, kTokenizer)}};
  std::filesystem::remove_all(folder.path() + "/tokenizer");
  EXPECT_FALSE(CheckTokenizers(mixture, ModelWith(kRewritten), "/m").ok());
}

// Workers compare paths with those of their roots by their text.
TEST(AbsolutePath, HasNoDotsUnlessALinkGivesThemAMeaning) {
  const testing::TempDir folder;
  const std::string& at = folder.path();
  for (const char* made : {"/runs", "/sets", "/far/away", "/far/sets"}) {
    std::filesystem::create_directories(at + made);
  }
  std::filesystem::create_directory_symlink(at + "/far/away", at + "/runs/link");
  EXPECT_EQ(AbsolutePath("../sets", at + "/runs"), at + "/sets");
  EXPECT_EQ(AbsolutePath(at + "/runs/./../sets", ""), at + "/sets");
  EXPECT_EQ(AbsolutePath("link/../sets", at + "/runs"), at + "/runs/link/../sets");
}

}  // namespace
}  // namespace longhaul::cli
