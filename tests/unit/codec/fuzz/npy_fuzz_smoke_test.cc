#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "codec/tool/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace longhaul::codec {
namespace {

TEST(NpyFuzz, SurvivesMutatedFiles) {
  std::mt19937 generator(98);
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    auto array = MakeArray(dtype, {1, 2, 3});
    ASSERT_TRUE(array.ok());
    for (std::byte& byte : array->data.span()) byte = std::byte{1};
    const std::string file = FormatNpy(array->view());
    for (int round = 0; round < 2000; ++round) {
      std::vector<uint8_t> bytes(file.begin(), file.end());
      for (uint32_t change = generator() % 4; change > 0; --change) {
        static constexpr std::string_view kTelling = "0123456789(),:'{}<fu4 \xff";
        bytes[generator() % 80] = static_cast<uint8_t>(kTelling[generator() % kTelling.size()]);
      }
      if (generator() % 8 == 0) bytes.resize(generator() % (bytes.size() + 20));
      EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
    }
  }
}

}  // namespace
}  // namespace longhaul::codec
