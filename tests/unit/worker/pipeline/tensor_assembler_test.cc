#include "worker/pipeline/tensor_assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "codec/registry.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

constexpr codec::Shape kTensorShape{1, 192, 128};  // 98,304 bytes as fp32: two chunks
constexpr size_t kTensorBytes = size_t{192} * 128 * 4;

class TensorAssemblerTest : public ::testing::Test {
 protected:
  TensorAssemblerTest()
      : codec_(codec::ParseCodec("none").value()),
        runner_(BoundaryCodec::Create({.shape = kTensorShape, .send = codec_, .receive = codec_})),
        assembler_({.microbatches = 2,
                    .validation_microbatches = 1,
                    .shape = kTensorShape,
                    .codec = [this](const Pass&) -> auto& { return *codec_;
}, .runner = [this](const Pass&) -> auto& {
  return *runner_;
}
}  // namespace
) {}

static wire::TensorHeader Header(uint64_t step, uint64_t microbatch, uint32_t chunk) {
  wire::TensorHeader header;
  header.kind = wire::TensorKind::kChunk;
  header.step = Step(step);
  header.microbatch = Microbatch(static_cast<uint32_t>(microbatch));
  header.blob_bytes = kTensorBytes;
  header.chunks = 2;
  header.chunk = chunk;
  header.chunk_offset = chunk * kChunkBytes;
  return header;
}
// What chunk `chunk` of it has: bytes that say where they belong.
static std::vector<std::byte> Body(uint32_t chunk) {
  const size_t begin = chunk * kChunkBytes, end = std::min(kTensorBytes, begin + kChunkBytes);
  std::vector<std::byte> body;
  for (size_t i = begin; i < end; ++i) body.push_back(static_cast<std::byte>(i % 251));
  return body;
}
auto Take(const wire::TensorHeader& header) {
  return assembler_.Take(header, Body(header.chunk));
}
std::string Refused(const wire::TensorHeader& header) {
  const Status status = Take(header).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}
void TakeWhole(uint64_t step, uint64_t microbatch) {
  ASSERT_EQ(Take(Header(step, microbatch, 0)).value(), nullptr);
  const auto tensor = Take(Header(step, microbatch, 1)).value();
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->pass, Pass{Step(step)});
  EXPECT_EQ(tensor->slice, Slice(Microbatch(static_cast<uint32_t>(microbatch))));
  ASSERT_EQ(tensor->blob_bytes, kTensorBytes);
  for (size_t i = 0; i < kTensorBytes; ++i) {
    ASSERT_EQ(tensor->blob.bytes[i], static_cast<std::byte>(i % 251)) << i;
  }
}

const std::shared_ptr<const codec::Codec> codec_;
const std::shared_ptr<BoundaryCodec> runner_;
TensorAssembler assembler_;
};  // namespace longhaul::worker

TEST_F(TensorAssemblerTest, GivesTensorsInTheirOrder) {
  TakeWhole(1, 0);
  TakeWhole(1, 1);
  TakeWhole(2, 0);
  TakeWhole(5, 0);  // steps that were skipped
  EXPECT_THAT(Refused(Header(5, 0, 0)), HasSubstr("not the one that follows"));
  EXPECT_THAT(Refused(Header(4, 0, 0)), HasSubstr("not the one that follows"));
  EXPECT_THAT(Refused(Header(6, 1, 0)), HasSubstr("not the one that follows"));
  EXPECT_THAT(Refused(Header(5, 2, 0)), HasSubstr("expected a microbatch below 2"));
  TakeWhole(5, 1);
}

// Forward from the first slice on, backward from the last one.
TEST_F(TensorAssemblerTest, GivesSlicesInTheOrderOfTheirDirection) {
  const auto header = [](uint32_t microbatch, uint32_t slice, uint32_t chunk) {
    wire::TensorHeader one = Header(1, microbatch, chunk);
    one.slice = slice;
    one.slices = 2;
    return one;
  };
  EXPECT_THAT(Refused(header(0, 0, 0)), HasSubstr("expected 1 slices of a microbatch, got 2"));
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    TensorAssembler assembler({.direction = direction,
                               .microbatches = 2,
                               .slices = 2,
                               .shape = kTensorShape,
                               .codec = [this](const Pass&) -> auto& { return *codec_;
  }
  , .runner = [this](const Pass&) -> auto& {
    return *runner_;
  }
});
const SliceOrder order(2);
for (uint32_t place = 0; place < 4; ++place) {
  const Slice slice = order.At(place, direction);
  for (uint32_t other = 0; other < 4; ++other) {
    const Slice wrong = order.At(other, direction);
    if (wrong == slice) continue;
    EXPECT_FALSE(assembler.Take(header(wrong.microbatch.value(), wrong.index, 0), Body(0)).ok());
  }
  ASSERT_EQ(assembler.Take(header(slice.microbatch.value(), slice.index, 0), Body(0)).value(),
            nullptr);
  const auto whole =
      assembler.Take(header(slice.microbatch.value(), slice.index, 1), Body(1)).value();
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->slice, slice);
}
}
}

TEST_F(TensorAssemblerTest, RefusesWhatIsNotTheNextChunk) {
  EXPECT_EQ(Take(Header(1, 0, 0)).value(), nullptr);
  EXPECT_THAT(Refused(Header(1, 0, 0)), HasSubstr("does not continue"));
  EXPECT_THAT(Refused(Header(1, 1, 1)), HasSubstr("does not continue"));
  wire::TensorHeader more = Header(1, 0, 1);
  more.chunks = 3;
  EXPECT_THAT(Refused(more), HasSubstr("does not continue"));
}

TEST_F(TensorAssemblerTest, RefusesBlobsThatAreNotWhatTheyAreSaidToBe) {
  wire::TensorHeader header = Header(1, 0, 0);
  header.blob_bytes = codec_->MaxEncodedBytes(kTensorShape) + 1;
  EXPECT_THAT(Refused(header), HasSubstr("expected a blob of 1 to"));
  header = Header(1, 0, 0);
  header.chunk_offset = 1;
  EXPECT_THAT(Refused(header), HasSubstr("expected chunk 0 at 0"));
  header = Header(1, 0, 0);
  header.chunks = 1;
  EXPECT_THAT(Refused(header), HasSubstr("do not add up"));
}

}  // namespace
}  // namespace longhaul::worker
