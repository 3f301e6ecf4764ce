// The formats, byte for byte: blobs of a fixed tensor, kept in golden/. Called with --update it
// writes them anew: for a change of the format, with a new version in the header.
#include <cstring>
#include <limits>

#include "base/file.h"
#include "codec/messages/memory_store.h"
#include "tests/conformance/codec/codec_fixture.h"

namespace longhaul::codec {
namespace {

bool g_update = false;

void CompareWithGolden(const std::vector<std::byte>& blob, const std::string& name) {
  const std::string_view bytes(reinterpret_cast<const char*>(blob.data()), blob.size());
  std::string path = GOLDEN_DIR "/" + name + ".lh";
  std::replace(path.begin() + static_cast<long>(std::strlen(GOLDEN_DIR)), path.end(), ':', '_');
  std::replace(path.begin() + static_cast<long>(std::strlen(GOLDEN_DIR)), path.end(), ',', '_');
  if (g_update) {
    const Status status = WriteFileAtomic(path, bytes);
    ASSERT_TRUE(status.ok()) << status;
  }
  const auto golden = ReadFile(path);
  ASSERT_TRUE(golden.ok()) << golden.status();
  ASSERT_EQ(golden->size(), bytes.size());
  for (size_t k = 0; k < bytes.size(); ++k) ASSERT_EQ((*golden)[k], bytes[k]) << "byte " << k;
}

class Golden : public testing::TestWithParam<std::string> {};

// With a tile of zeros, a constant one, one with a NaN, denormals and a padded last one.
Tensor GoldenTensor() {
  const Shape shape{2, 4, 100};
  std::vector<float> values = Activations(shape.elements(), 2024);
  std::fill_n(values.begin() + 100, 64, 0.0f);
  std::fill_n(values.begin() + 200, 64, -1.75f);
  values[310] = std::numeric_limits<float>::quiet_NaN();
  for (size_t k = 364; k < 400; ++k) values[k] = static_cast<float>(k) * 0x1p-145f;
  for (size_t k = 400; k < 800; ++k) values[k] *= 1e-6f;
  return {Dtype::kF32, shape, values};
}

TEST_P(Golden, IsReproduced) {
  Context context;
  context.seed = 1;
  context.step = Step(2);
  context.replica = 3;
  context.edge = EdgeId(4);
  context.direction = Direction::kBackward;
  context.microbatch = Microbatch(5);
  const auto codec = MustParse(GetParam());
  const std::vector<std::byte> blob = MustEncode(*codec, GoldenTensor().view(), context);
  CompareWithGolden(blob, GetParam());
}

// What is sent of samples that were seen before, and of one beside them that was not.
TEST(GoldenDifference, IsReproduced) {
  const auto codec = MustParse("aqsgd:bits=3");
  const Shape shape{3, 2, 100};
  MemoryStore store(8, codec->MessageBytes(shape));
  Context context;
  context.messages = &store;
  std::vector<float> values = Activations(shape.elements(), 2024);
  for (const std::vector<uint64_t>& ids :
       {std::vector<uint64_t>{1, 2, 1}, std::vector<uint64_t>{2, 7, 1}}) {
    context.sample_ids = ids;
    const std::vector<std::byte> blob =
        MustEncode(*codec, Tensor(Dtype::kF32, shape, values).view(), context);
    if (ids[0] == 2) CompareWithGolden(blob, "aqsgd:bits=3,differences");
    const std::vector<float> change = Activations(shape.elements(), 2025, 0.1f);
    for (size_t k = 0; k < values.size(); ++k) values[k] += change[k];
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Golden,
                         testing::Values("none", "bf16", "fp16", "fixed:bits=3", "fixed:bits=10",
                                         "fixed:bits=4,rounding=stochastic", "fixed:bits=6,tile=32",
                                         "tah", "tah:rounding=stochastic",
                                         "tah:tile=32,alloc=64,p=0.5",
                                         "tah:tile=128,alloc=token,tau=0", "gauss",
                                         "gauss:bits=2,block=64", "gauss:bits=3,block=64",
                                         "gauss:bits=5,block=256", "gauss:bits=6,block=512",
                                         "aqsgd"),
                         TestName);

}  // namespace
}  // namespace longhaul::codec

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  longhaul::codec::g_update = argc == 2 && std::strcmp(argv[1], "--update") == 0;
  return RUN_ALL_TESTS();
}
