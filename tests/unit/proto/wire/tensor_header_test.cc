#include "proto/wire/tensor_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>

#include "proto/wire/little_endian.h"
#include "tests/support/golden.h"

namespace longhaul::wire {
namespace {

using ::testing::HasSubstr;
using Bytes = std::array<std::byte, kTensorHeaderBytes>;

TensorHeader Example() {
  return {.kind = TensorKind::kChunk,
          .validation = true,
          .stamp = Stamp(0x0102030405060708),
          .epoch = Epoch(0x11),
          .step = Step(0x2122),
          .replica = 3,
          .microbatch = Microbatch(0x31),
          .edge = EdgeId(4),
          .direction = Direction::kBackward,
          .shard = 1,
          .shards = 2,
          .slice = 3,
          .slices = 4,
          .blob_bytes = 0x41424344,
          .chunk_offset = 0x010000,
          .chunk = 1,
          .chunks = 0x5152};
}

Bytes Encode(const TensorHeader& header) {
  Bytes out;
  EncodeTensorHeader(header, out);
  return out;
}

TEST(TensorHeaderTest, GoldenBytes) {
  longhaul::testing::ExpectGolden(GOLDEN_DIR, "tensor_header", kTensorVersion, Encode(Example()));
}

TEST(TensorHeaderTest, RoundTrip) {
  for (const TensorKind kind :
       {TensorKind::kChunk, TensorKind::kNormUp, TensorKind::kStepControl,
        TensorKind::kMessageState, TensorKind::kMatrixDigest, TensorKind::kTaken,
        TensorKind::kReplicaMessage, TensorKind::kSampleRound, TensorKind::kSampledTokens}) {
    TensorHeader header = Example();
    header.kind = kind;
    const auto decoded = DecodeTensorHeader(Encode(header));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, header);
  }
  EXPECT_EQ(*DecodeTensorHeader(Encode({})), TensorHeader{});
  TensorHeader sampling = Example();
  sampling.validation = false;
  sampling.sampling = true;
  sampling.number = 0x61626364;
  EXPECT_EQ(*DecodeTensorHeader(Encode(sampling)), sampling);
}

TEST(TensorHeaderTest, CleanValidationComesBack) {
  TensorHeader header = Example();
  header.clean = true;
  const auto decoded = DecodeTensorHeader(Encode(header));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, header);
}

TEST(TensorHeaderTest, TooShort) {
  const Bytes bytes = Encode(Example());
  for (size_t size = 0; size < kTensorHeaderBytes; ++size) {
    EXPECT_EQ(DecodeTensorHeader(std::span(bytes).first(size)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

struct BadField {
  std::string name;
  std::function<void(Bytes&)> change;
  absl::StatusCode code;
  std::string words;
};

class BadTensorHeaderTest : public ::testing::TestWithParam<BadField> {};

TEST_P(BadTensorHeaderTest, IsRefusedWithTheReason) {
  Bytes bytes = Encode(Example());
  GetParam().change(bytes);
  const Status status = DecodeTensorHeader(bytes).status();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr(GetParam().words));
}

template <class T>
std::function<void(Bytes&)> Put(size_t at, T value) {
  return [=](Bytes& bytes) { PutLe<T>(bytes, at, value); };
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadTensorHeaderTest,
    ::testing::ValuesIn(std::vector<BadField>{
        {"Magic", Put<uint8_t>(0, 0), absl::StatusCode::kInvalidArgument, "magic"},
        {"VersionZero", Put<uint16_t>(4, 0), absl::StatusCode::kUnimplemented, "version 0"},
        {"VersionOne", Put<uint16_t>(4, 1), absl::StatusCode::kUnimplemented, "version 1"},
        {"KindZero", Put<uint8_t>(6, 0), absl::StatusCode::kInvalidArgument,
         "kind 1 to 3 or 5 to 10"},
        {"KindEleven", Put<uint8_t>(6, 11), absl::StatusCode::kInvalidArgument,
         "kind 1 to 3 or 5 to 10"},
        {"Flags", Put<uint8_t>(7, 2), absl::StatusCode::kInvalidArgument, "flags"},
        {"Direction", Put<uint8_t>(44, 2), absl::StatusCode::kInvalidArgument, "direction"},
        {"Reserved45", Put<uint8_t>(45, 1), absl::StatusCode::kInvalidArgument, "reserved"},
        {"Extension", Put<uint16_t>(46, 8), absl::StatusCode::kInvalidArgument, "extension"},
        {"Shard", Put<uint32_t>(48, 2), absl::StatusCode::kInvalidArgument, "shard below"},
        {"NoShards", Put<uint32_t>(52, 0), absl::StatusCode::kInvalidArgument, "shard below"},
        {"Slice", Put<uint32_t>(56, 4), absl::StatusCode::kInvalidArgument, "slice below"},
        {"NoSlices", Put<uint32_t>(60, 0), absl::StatusCode::kInvalidArgument, "slice below"},
        {"OffsetBeyondBlob", Put<uint64_t>(72, 0x41424345), absl::StatusCode::kInvalidArgument,
         "offset"},
        {"Chunk", Put<uint32_t>(80, 0x5152), absl::StatusCode::kInvalidArgument, "chunk below"},
        {"NoChunks", Put<uint32_t>(84, 0), absl::StatusCode::kInvalidArgument, "chunk below"},
        {"FirstChunkNotAtZero", Put<uint32_t>(80, 0), absl::StatusCode::kInvalidArgument,
         "first chunk"},
        {"Reserved88", Put<uint64_t>(88, 1), absl::StatusCode::kInvalidArgument, "reserved"},
    }),
    [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace longhaul::wire
