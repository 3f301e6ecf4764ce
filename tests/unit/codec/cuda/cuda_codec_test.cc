// What a GPU's codecs say without a GPU.
#include "codec/cuda/cuda_codec.h"

#include <gmock/gmock.h>

#include <string>

namespace longhaul::codec::cuda {
namespace {

using ::testing::HasSubstr;

TEST(CudaCodec, UnknownCodecsAreRefused) {
  const Status status = CudaCodec::Create("thah").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("thah"));
}

TEST(CudaCodec, SizesAreTheCpus) {
  const Shape shape{2, 30, 200};
  for (const char* text :
       {"none", "bf16", "fixed:bits=5", "tah", "gauss", "dither", "aqsgd", "zip", "taco"}) {
    const StatusOr<CudaCodec> codec = CudaCodec::Create(text);
    ASSERT_TRUE(codec.ok()) << codec.status();
    EXPECT_EQ(codec->MaxEncodedBytes(shape), codec->cpu().MaxEncodedBytes(shape));
    EXPECT_EQ(codec->WorkspaceBytes(shape) % 64, 0u);
    EXPECT_EQ(codec->WorkspaceBytes({0, 30, 200}), 0u);
  }
}

}  // namespace
}  // namespace longhaul::codec::cuda
