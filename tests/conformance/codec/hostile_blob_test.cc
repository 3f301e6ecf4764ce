// Bytes that are no blob, or not this codec's: an error or numbers, never a crash.
#include <random>

#include "codec/blob.h"
#include "python_too.h"

namespace longhaul::codec {
namespace {

class HostileBlob : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr Shape kShape{2, 3, 100};
  std::shared_ptr<const Codec> codec_ = MustMakeReady(GetParam());
  Tensor in_{Dtype::kF32, kShape, Activations(kShape.elements(), 21)};
  std::vector<std::byte> blob_ = MustEncode(*codec_, in_.view());
};

TEST_P(HostileBlob, EveryTruncationIsRefused) {
  Tensor out(Dtype::kF32, kShape);
  for (size_t size = 0; size < blob_.size(); ++size) {
    // An own allocation of that size: a sanitizer sees every read behind it.
    const std::vector<std::byte> part(blob_.begin(), blob_.begin() + static_cast<long>(size));
    EXPECT_EQ(Decode(*codec_, part, &out).code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_FALSE(CodecOfBlob(part).ok());
  }
}

TEST_P(HostileBlob, EveryHeaderBitIsCheckedOrHarmless) {
  Tensor out(Dtype::kF32, kShape);
  for (size_t bit = 0; bit < kBlobHeaderBytes * 8; ++bit) {
    std::vector<std::byte> blob = blob_;
    blob[bit / 8] ^= std::byte{1} << (bit % 8);
    const Status status = Decode(*codec_, blob, &out);
    const size_t byte = bit / 8;
    if (byte == 4 || byte == 5) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    } else if (byte != 7 && (byte < 48 || byte >= 56)) {
      // Not the source's dtype, where another valid one is not this codec's to judge, nor the count
      // of non-finite tiles, which may be any that is possible.
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "bit " << bit;
    }
    const auto other = CodecOfBlob(blob);
    if (other.ok() && (*other)->name() != codec_->name()) {
      EXPECT_FALSE(status.ok());
    }
  }
}

TEST_P(HostileBlob, DamagedPayloadsAreDefined) {
  std::mt19937 generator(5);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::byte> blob = blob_;
    for (uint32_t flips = 1 + generator() % 20; flips > 0; --flips) {
      const size_t place = kBlobHeaderBytes + generator() % (blob.size() - kBlobHeaderBytes);
      blob[place] ^= static_cast<std::byte>(generator());
    }
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
      Tensor out(dtype, kShape);
      const Status status = Decode(*codec_, blob, &out);
      EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
    }
  }
}

TEST_P(HostileBlob, BlobsOfOtherCodecsAreRefused) {
  for (const std::string& text : AllCodecsAndPython()) {
    if (text == GetParam()) continue;
    const auto other = MustParse(text);
    Tensor out(Dtype::kF32, kShape);
    EXPECT_EQ(Decode(*other, blob_, &out).code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST_P(HostileBlob, NamesItsCodec) {
  const auto codec = CodecOfBlob(blob_);
  ASSERT_TRUE(codec.ok()) << codec.status();
  EXPECT_EQ((*codec)->name(), codec_->name());
}

INSTANTIATE_TEST_SUITE_P(All, HostileBlob, ::testing::ValuesIn(AllCodecsAndPython()), TestName);

}  // namespace
}  // namespace longhaul::codec
