#include <random>

#include "tests/conformance/codec/codec_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace longhaul::codec {
namespace {

TEST(DecodeFuzz, SurvivesMutatedBlobs) {
  std::mt19937 generator(99);
  for (const std::string& text : AllCodecs()) {
    const auto codec = MustParse(text);
    for (const Shape shape : {Shape{1, 2, 70}, Shape{2, 1, 129}, Shape{0, 1, 1}}) {
      const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 4));
      const std::vector<std::byte> blob = MustEncode(*codec, in.view());
      for (int round = 0; round < 100; ++round) {
        std::vector<uint8_t> bytes(blob.size());
        std::memcpy(bytes.data(), blob.data(), blob.size());
        for (uint32_t change = generator() % 4; change > 0; --change) {
          // Half of the changes in the header, where they matter most.
          const size_t range = generator() % 2 == 0 ? 64 : bytes.size();
          bytes[generator() % range] = static_cast<uint8_t>(generator());
        }
        if (generator() % 8 == 0) bytes.resize(generator() % (bytes.size() + 20));
        EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::codec
