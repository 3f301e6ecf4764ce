#include "codec/blob.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "codec/fixed/format.h"

namespace longhaul::codec {
namespace {

BlobHeader Example() {
  BlobHeader header;
  header.codec = fixed::kId;
  header.source_dtype = Dtype::kBf16;
  header.shape = {2, 3, 5};
  header.payload_bytes = 7;
  header.parameters[0] = std::byte{6};
  header.nonfinite_tiles = 4;
  return header;
}

std::vector<std::byte> Write(const BlobHeader& header) {
  std::vector<std::byte> blob(kBlobHeaderBytes + header.payload_bytes);
  WriteBlobHeader(header, blob);
  return blob;
}

TEST(BlobHeader, ComesBack) {
  const auto header = ParseBlobHeader(Write(Example()));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->codec, fixed::kId);
  EXPECT_EQ(header->source_dtype, Dtype::kBf16);
  EXPECT_EQ(header->shape, (Shape{2, 3, 5}));
  EXPECT_EQ(header->payload_bytes, 7u);
  EXPECT_EQ(header->parameters, Example().parameters);
  EXPECT_EQ(header->nonfinite_tiles, 4u);
}

TEST(BlobHeader, HasTheDocumentedLayout) {
  const std::vector<std::byte> blob = Write(Example());
  const auto byte = [&](size_t place) { return static_cast<int>(blob[place]); };
  EXPECT_EQ(std::memcmp(blob.data(), "LHBL", 4), 0);
  EXPECT_EQ(byte(4), 2);   // version
  EXPECT_EQ(byte(6), 4);   // codec
  EXPECT_EQ(byte(7), 3);   // dtype
  EXPECT_EQ(byte(8), 2);   // samples
  EXPECT_EQ(byte(12), 3);  // tokens
  EXPECT_EQ(byte(16), 5);  // channels
  EXPECT_EQ(byte(24), 7);  // payload
  EXPECT_EQ(byte(32), 6);  // parameters
  EXPECT_EQ(byte(48), 4);  // non-finite tiles
}

struct Damage {
  const char* what;
  size_t place;
  int value;
  absl::StatusCode code;
};

class DamagedHeader : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedHeader, IsRefused) {
  std::vector<std::byte> blob = Write(Example());
  blob[GetParam().place] = static_cast<std::byte>(GetParam().value);
  EXPECT_EQ(ParseBlobHeader(blob).status().code(), GetParam().code) << GetParam().what;
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
INSTANTIATE_TEST_SUITE_P(
    Fields, DamagedHeader,
    ::testing::Values(Damage{"magic", 0, 'X', kInvalid},
                      Damage{"version before", 4, 1, absl::StatusCode::kUnimplemented},
                      Damage{"version after", 4, 3, absl::StatusCode::kUnimplemented},
                      Damage{"codec 0", 6, 0, kInvalid}, Damage{"codec 200", 6, 200, kInvalid},
                      Damage{"dtype 0", 7, 0, kInvalid}, Damage{"dtype 4", 7, 4, kInvalid},
                      Damage{"huge shape", 11, 255, kInvalid}, Damage{"reserved", 20, 1, kInvalid},
                      Damage{"payload", 24, 8, kInvalid}, Damage{"payload", 31, 255, kInvalid},
                      Damage{"count", 48, 31, kInvalid}, Damage{"reserved", 63, 1, kInvalid}));

TEST(BlobHeader, NeedsAllItsBytes) {
  const std::vector<std::byte> blob = Write(Example());
  for (size_t size = 0; size < blob.size(); ++size) {
    EXPECT_FALSE(ParseBlobHeader(std::span(blob).first(size)).ok());
  }
}

TEST(CheckShape, RefusesWhatOverflows) {
  EXPECT_TRUE(CheckShape({1, 1u << 16, 1u << 16}).ok());
  EXPECT_FALSE(CheckShape({2, 1u << 16, 1u << 16}).ok());
  EXPECT_FALSE(CheckShape({0xffffffff, 0xffffffff, 0xffffffff}).ok());
  // 2^96 elements is zero modulo 2^64.
  EXPECT_FALSE(CheckShape({1u << 31, 1u << 31, 1u << 31}).ok());
  EXPECT_TRUE(CheckShape({0xffffffff, 0xffffffff, 0}).ok());
}

}  // namespace
}  // namespace longhaul::codec
