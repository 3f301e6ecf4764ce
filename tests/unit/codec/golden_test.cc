// Blobs of a fixed tensor, and what a boundary's messages are on disk.
#include "tests/support/golden.h"

#include <cstring>
#include <limits>

#include "base/file.h"
#include "codec/blob.h"
#include "codec/messages/file_store.h"
#include "codec/messages/memory_store.h"
#include "codec/messages/undo_journal.h"
#include "codec/predict/tables.h"
#include "tests/conformance/codec/codec_fixture.h"
#include "tests/support/temp_dir.h"

namespace longhaul::codec {
namespace {

using ::longhaul::testing::ExpectGolden;

class Golden : public ::testing::TestWithParam<std::string> {};

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
  ExpectGolden(GOLDEN_DIR, GetParam(), kBlobVersion, blob);
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
    if (ids[0] == 2) ExpectGolden(GOLDEN_DIR, "aqsgd:bits=3,differences", kBlobVersion, blob);
    const std::vector<float> change = Activations(shape.elements(), 2025, 0.1f);
    for (size_t k = 0; k < values.size(); ++k) values[k] += change[k];
  }
}

// What is sent of tokens that were seen before.
TEST(GoldenPrediction, IsReproduced) {
  const auto codec = MustParse("predict:pairs=16,prior=1/fixed:bits=3");
  const Shape shape{2, 5, 100};
  auto tables = predict::Tables::Create({.vocabulary = 70000, .channels = 100, .pairs = 16});
  ASSERT_TRUE(tables.ok());
  Context context;
  context.tables = &*tables;
  context.learns = true;
  std::vector<float> values = Activations(shape.elements(), 2024);
  for (const std::vector<uint32_t>& ids :
       {std::vector<uint32_t>{1, 2, 1, 69999, 0, 7, 1, 2, 2, 2},
        std::vector<uint32_t>{2, 2, 1, 69999, 1, 0, 0, 1, 5, 7}}) {
    context.token_ids = ids;
    const std::vector<std::byte> blob =
        MustEncode(*codec, Tensor(Dtype::kF32, shape, values).view(), context);
    if (ids[0] == 2) ExpectGolden(GOLDEN_DIR, "predict,seen_before", kBlobVersion, blob);
    const std::vector<float> change = Activations(shape.elements(), 2025, 0.1f);
    for (size_t k = 0; k < values.size(); ++k) values[k] += change[k];
  }
  std::vector<std::byte> after(sizeof(uint64_t));
  const uint64_t check = tables->check();
  std::memcpy(after.data(), &check, sizeof(check));
  ExpectGolden(GOLDEN_DIR, "predict,check", kBlobVersion, after);
}

INSTANTIATE_TEST_SUITE_P(
    Files, Golden,
    ::testing::Values("none", "bf16", "fp16", "fixed:bits=3", "fixed:bits=10",
                      "fixed:bits=4,rounding=stochastic", "fixed:bits=6,tile=32", "tah",
                      "tah:rounding=stochastic", "tah:tile=32,alloc=64,p=0.5",
                      "tah:tile=128,alloc=token,tau=0", "gauss", "gauss:bits=2,block=64",
                      "gauss:bits=3,block=64", "gauss:bits=5,block=256", "gauss:bits=6,block=512",
                      "dither", "dither:bits=1.5,block=64", "dither:bits=3,block=256", "aqsgd",
                      "zip", "predict/gauss", "taco", "taco:format=e5m2,block=64",
                      "taco:format=int8,block=512"),
    TestName);

// Two steps over three samples: sample 2 is changed in both, sample 0 never.
TEST(GoldenMessages, RecordsAndJournalAreReproduced) {
  const longhaul::testing::TempDir folder;
  {
    auto store = FileStore::Open({.folder = folder.path() + "/store",
                                  .identity = "run a, layer 4",
                                  .samples = 3,
                                  .record_bytes = 80});
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->RollBack(Step(0)).ok());
    for (const auto& [step, sample] : {std::pair{1, 2}, {2, 1}, {2, 2}}) {
      const auto record =
          (*store)->Write(Step(static_cast<uint64_t>(step)), static_cast<uint64_t>(sample));
      ASSERT_TRUE(record.ok()) << record.status();
      std::ranges::fill(*record, static_cast<std::byte>(16 * step + sample));
    }
  }
  const auto contents = [&](const char* name) {
    return ReadFile(folder.path() + "/store/" + name).value_or("");
  };
  ExpectGolden(GOLDEN_DIR, "message_records", FileStore::kVersion, contents("records"));
  ExpectGolden(GOLDEN_DIR, "message_journal", UndoJournal::kVersion,
               contents("undo-0000000000000002"));
}

}  // namespace
}  // namespace longhaul::codec
