#include "worker/checkpoint/shard_coding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> TextBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::byte> BytesOf(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::string Encoded(std::span<const std::byte> raw) {
  std::string coded;
  for (size_t at = 0; at < raw.size(); at += kShardBlockBytes) {
    coded += EncodeShardBlock(raw.subspan(at, std::min(kShardBlockBytes, raw.size() - at)));
  }
  return coded;
}

// In pieces of so many bytes.
std::vector<std::byte> Decoded(const std::string& coded, size_t piece) {
  ShardDecoder decoder;
  std::vector<std::byte> raw;
  for (size_t at = 0; at < coded.size(); at += piece) {
    EXPECT_TRUE(decoder.Take(TextBytes(coded.substr(at, piece)), &raw).ok()) << at;
  }
  EXPECT_TRUE(decoder.between_blocks());
  return raw;
}

std::string Refusal(const std::string& coded) {
  ShardDecoder decoder;
  std::vector<std::byte> raw;
  const Status status = decoder.Take(TextBytes(coded), &raw);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  return std::string(Message(status));
}

std::vector<float> Normal(size_t count, uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(bits);
  return values;
}

TEST(ShardCoding, GivesBackEveryByteOfAnyLength) {
  std::mt19937_64 random(17);
  for (const size_t size :
       {size_t{1}, size_t{3}, size_t{4}, size_t{5}, size_t{1001}, kShardBlockBytes - 1,
        kShardBlockBytes, kShardBlockBytes + 1, 3 * kShardBlockBytes + 2}) {
    std::vector<std::byte> raw(size);
    for (std::byte& byte : raw) byte = static_cast<std::byte>(random());
    for (const size_t piece : {size_t{1} + size / 7, size + 100}) {
      EXPECT_EQ(Decoded(Encoded(raw), piece), raw) << size << " in pieces of " << piece;
    }
  }
}

TEST(ShardCoding, KeepsWhatIsNoOrdinaryNumber) {
  const std::vector<std::byte> raw =
      BytesOf({0.0f, -0.0f, std::nanf("7"), std::numeric_limits<float>::infinity(),
               -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min(),
               -std::numeric_limits<float>::max()});
  EXPECT_EQ(Decoded(Encoded(raw), 1), raw);
}

TEST(ShardCoding, NormalNumbersTakeASixthLess) {
  const std::vector<std::byte> raw = BytesOf(Normal(200'000, 5));
  const std::string coded = Encoded(raw);
  EXPECT_EQ(Decoded(coded, 1000), raw);
  EXPECT_LT(coded.size(), raw.size() * 0.85);
}

TEST(ShardCoding, NoiseTakesNoMoreThanItsBlocksHeaders) {
  std::mt19937_64 random(3);
  std::vector<std::byte> raw(2 * kShardBlockBytes);
  for (std::byte& byte : raw) byte = static_cast<std::byte>(random());
  EXPECT_LE(Encoded(raw).size(), raw.size() + 2 * kShardBlockHeaderBytes);
}

std::string Header(uint32_t raw, uint32_t body) {
  std::string header(kShardBlockHeaderBytes, '\0');
  std::memcpy(header.data(), &raw, 4);
  std::memcpy(header.data() + 4, &body, 4);
  return header;
}

TEST(ShardCoding, RefusesWhatIsNoBlock) {
  EXPECT_THAT(Refusal(Header(0, 1)), HasSubstr("of a length that no block has"));
  EXPECT_THAT(Refusal(Header(kShardBlockBytes + 1, 1)), HasSubstr("of a length that no block has"));
  EXPECT_THAT(Refusal(Header(8, 9)), HasSubstr("longer than what it stands for"));
  EXPECT_THAT(Refusal(Header(8, 0)), HasSubstr("longer than what it stands for"));
  EXPECT_THAT(Refusal(Header(8, 6) + std::string(6, 'x')), HasSubstr("shorter than"));
  EXPECT_THAT(Refusal(Header(8, 7) + std::string(7, 'x')), HasSubstr("no frame of Zstandard"));
  // A frame of 25 exponents where 100 are to be.
  const std::vector<std::byte> raw = BytesOf(std::vector<float>(100, 1.5f));
  std::string coded = EncodeShardBlock(raw);
  std::string few = EncodeShardBlock(std::span(raw).first(100));
  const std::string frame = few.substr(kShardBlockHeaderBytes, few.size() - 75 - 8);
  EXPECT_THAT(Refusal(Header(400, static_cast<uint32_t>(frame.size()) + 300) + frame +
                      std::string(300, 'x')),
              HasSubstr("too many or too few"));
  coded[kShardBlockHeaderBytes] ^= 1;
  EXPECT_THAT(Refusal(coded), HasSubstr("no frame of Zstandard"));
}

}  // namespace
}  // namespace longhaul::worker
