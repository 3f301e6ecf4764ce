// Words about chunks of data sets, byte for byte, and those that are none.
#include "proto/wire/chunk_word.h"

#include <gmock/gmock.h>

#include <span>
#include <string>
#include <vector>

#include "proto/wire/link_header.h"
#include "tests/support/golden.h"

namespace longhaul::wire {
namespace {

const ChunkAsk kExample{.request = 0x01020304,
                        .validation = true,
                        .mask = true,
                        .source = 0x11121314,
                        .shard = 0x21222324,
                        .chunk = 0x3132333435363738};

StatusOr<ChunkWord> Decode(const std::string& bytes) {
  return DecodeChunkWord(std::as_bytes(std::span(bytes)));
}

TEST(ChunkWordTest, GoldenBytesComeBack) {
  const ChunkWord words[] = {kExample, ChunkAsk{}, ChunkNotHere{.request = 0x01020304}};
  std::string all;
  for (const ChunkWord& word : words) {
    const std::string bytes = EncodeChunkWord(word);
    const auto decoded = Decode(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(*decoded == word);
    all += bytes;
  }
  all += EncodeChunkPieceHeader(0x01020304);
  longhaul::testing::ExpectGolden(GOLDEN_DIR, "chunk_words", kLinkVersionMax, all);
}

TEST(ChunkWordTest, OtherSizesAndUnknownBytesAreRefused) {
  const std::string ask = EncodeChunkWord(kExample);
  const std::string not_here = EncodeChunkWord(ChunkNotHere{.request = 7});
  EXPECT_FALSE(Decode("").ok());
  for (const std::string& word : {ask, not_here}) {
    EXPECT_FALSE(Decode(word + '\0').ok());
    for (size_t size = 0; size < word.size(); ++size) {
      EXPECT_FALSE(Decode(word.substr(0, size)).ok()) << size;
    }
    for (size_t at = 0; at < 4; ++at) {
      std::string other = word;
      other[at] = 3;
      EXPECT_FALSE(Decode(other).ok()) << at;
    }
  }
}

TEST(ChunkPieceTest, HasARequestAndBytes) {
  const std::string header = EncodeChunkPieceHeader(9), whole = header + "tokens";
  EXPECT_FALSE(DecodeChunkPiece(std::as_bytes(std::span(header))).ok());
  EXPECT_FALSE(DecodeChunkPiece({}).ok());
  const auto piece = DecodeChunkPiece(std::as_bytes(std::span(whole)));
  ASSERT_TRUE(piece.ok()) << piece.status();
  EXPECT_EQ(piece->request, 9u);
  EXPECT_EQ(piece->bytes.size(), 6u);
}

}  // namespace
}  // namespace longhaul::wire
