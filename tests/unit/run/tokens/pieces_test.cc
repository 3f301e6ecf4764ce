// The table of tokens' bytes, and the text that is made of ids with it.
#include "run/tokens/pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "run/tokens/sample_text.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

TokenPieces Table(const std::vector<std::string>& pieces) {
  StatusOr<TokenPieces> table = TokenPieces::Parse(TokenPieces::Encode(pieces));
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

TEST(TokenPiecesTest, GivesWhatWasWritten) {
  const TokenPieces table = Table({"a", "", "\xff\0b", " word"});
  EXPECT_EQ(table.size(), 4u);
  EXPECT_EQ(table.Of(0), "a");
  EXPECT_EQ(table.Of(1), "");
  EXPECT_EQ(table.Of(3), " word");
  EXPECT_EQ(table.Of(4), "") << "an id without a piece";
  EXPECT_EQ(Table({}).size(), 0u);
}

TEST(TokenPiecesTest, RefusesAnythingElse) {
  const std::string good = TokenPieces::Encode({"abc", "d"});
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(TokenPieces::Parse(good.substr(0, size)).ok()) << size;
  }
  std::string falling = good;
  falling[20] = 2;  // the second piece ends before the first one
  EXPECT_THAT(std::string(Message(TokenPieces::Parse(falling).status())), HasSubstr("token 1"));
  std::string many = good;
  many[15] = 0x7f;
  EXPECT_FALSE(TokenPieces::Parse(many).ok());
  EXPECT_FALSE(TokenPieces::Parse("").ok());
}

TEST(SampleTextTest, JoinsPiecesAndReplacesWhatIsNoText) {
  const SampleText text(
      std::make_shared<const TokenPieces>(Table({"caf", "\xc3", "\xa9", "\xff", "\x1b[2J", "\n"})));
  EXPECT_EQ(text.Of(std::vector<uint32_t>{0, 1, 2}), "caf\xc3\xa9");
  EXPECT_EQ(text.Of(std::vector<uint32_t>{0, 1}), "caf") << "the character is not whole";
  EXPECT_EQ(text.Of(std::vector<uint32_t>{0, 3, 0}), "caf?caf");
  EXPECT_EQ(text.Of(std::vector<uint32_t>{4, 5, 99}), "?[2J\n");
  EXPECT_EQ(SampleText().Of(std::vector<uint32_t>{'h', 'i', 300}), "hi");
}

}  // namespace
}  // namespace longhaul
