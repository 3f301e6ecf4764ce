#include <random>

#include "codec/messages/memory_store.h"
#include "tests/conformance/codec/codec_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace longhaul::codec {
namespace {

// Half of the changes in the header, where they matter most.
void FeedMutations(const std::vector<std::byte>& blob, int rounds, std::mt19937& generator) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<uint8_t> bytes(blob.size());
    std::memcpy(bytes.data(), blob.data(), blob.size());
    for (uint32_t change = generator() % 4; change > 0; --change) {
      const size_t range = generator() % 2 == 0 ? 64 : bytes.size();
      bytes[generator() % range] = static_cast<uint8_t>(generator());
    }
    if (generator() % 8 == 0) bytes.resize(generator() % (bytes.size() + 20));
    EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
  }
}

// A blob that the target's messages of zeros fit.
TEST(DecodeFuzz, SurvivesMutatedDifferences) {
  std::mt19937 generator(100);
  const auto codec = MustParse("aqsgd");
  for (const Shape shape : {Shape{1, 2, 70}, Shape{2, 1, 129}}) {
    MemoryStore store(2, codec->MessageBytes(shape));
    const std::vector<uint64_t> ids = {1, 0};
    Context context;
    context.sample_ids = std::span(ids).first(shape.samples);
    context.messages = &store;
    MustEncode(*codec, Tensor(Dtype::kF32, shape, std::vector<float>(shape.elements())).view(),
               context);
    std::vector<float> values = Activations(shape.elements(), 4, 40);
    const std::vector<std::byte> blob =
        MustEncode(*codec, Tensor(Dtype::kF32, shape, values).view(), context);
    FeedMutations(blob, 1000, generator);
  }
}

TEST(DecodeFuzz, SurvivesMutatedBlobs) {
  std::mt19937 generator(99);
  for (const std::string& text : AllCodecs()) {
    const auto codec = MustParse(text);
    for (const Shape shape : {Shape{1, 2, 70}, Shape{2, 1, 129}, Shape{0, 1, 1}}) {
      const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 4));
      const std::vector<std::byte> blob = MustEncode(*codec, in.view());
      FeedMutations(blob, 100, generator);
    }
  }
}

}  // namespace
}  // namespace longhaul::codec
