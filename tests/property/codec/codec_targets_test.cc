// The codecs' kernels give the same bytes with every instruction set: each one that this CPU has is
// compared with the simplest, over all codecs, and random shapes, dtypes, contents and damaged
// blobs. The program needs no files, so that it can be taken to a machine with other instruction
// sets.
#include <fmt/ranges.h>

#include <iostream>
#include <random>

#include "codec/messages/memory_store.h"
#include "codec/simd/targets.h"
#include "tests/property/codec/random_codecs.h"

namespace longhaul::codec {
namespace {

constexpr int kRoundsOfACodec = 5;

struct Decoded {
  Status status;
  std::vector<std::byte> bytes;
};

Decoded DecodeTo(const Codec& codec, const std::vector<std::byte>& blob, Dtype dtype,
                 const Shape& shape) {
  Tensor out(dtype, shape);
  Decoded decoded;
  decoded.status = Decode(codec, blob, &out);
  const auto* bytes = static_cast<const std::byte*>(out.view().data);
  if (decoded.status.ok()) decoded.bytes.assign(bytes, bytes + out.view().size_bytes());
  return decoded;
}

// Which bits a NaN has that came of arithmetic on damaged bytes is nobody's promise.
void MakeNansEqual(Dtype dtype, std::vector<std::byte>* bytes) {
  const size_t step = BytesPerElement(dtype);
  for (size_t k = 0; k < bytes->size(); k += step) {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes->data() + k, step);
    const uint32_t sign = dtype == Dtype::kF32 ? 0x80000000 : 0x8000;
    const uint32_t infinity = dtype == Dtype::kF32    ? 0x7f800000
                              : dtype == Dtype::kBf16 ? 0x7f80
                                                      : 0x7c00;
    if ((bits & ~sign) <= infinity) continue;
    std::memset(bytes->data() + k, 0xff, step);
  }
}

void Damage(std::mt19937* generator, std::vector<std::byte>* blob) {
  if (blob->size() <= 64) return;
  for (uint32_t bytes = 1 + Below(generator, 20); bytes > 0; --bytes) {
    (*blob)[64 + (*generator)() % (blob->size() - 64)] = static_cast<std::byte>((*generator)());
  }
}

class EveryTarget : public ::testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(UseKernelTarget("").ok()); }
};

TEST_F(EveryTarget, GivesTheSameBytesAsTheSimplest) {
  std::vector<std::string> others = KernelTargets();
  const std::string simplest = others.back();
  others.pop_back();
  std::cout << fmt::format("compared with {}: {}\n", simplest, fmt::join(others, ", "));
  if (others.empty()) GTEST_SKIP() << "this CPU has only " << simplest;
  constexpr Dtype kDtypes[] = {Dtype::kF32, Dtype::kF16, Dtype::kBf16};
  std::mt19937 generator(20250711);
  const std::vector<std::string> codecs = VariousCodecs();
  for (size_t round = 0; round < kRoundsOfACodec * codecs.size(); ++round) {
    const std::string& name = codecs[round / kRoundsOfACodec];
    const auto codec = MustParse(name);
    ASSERT_NE(codec, nullptr) << name;
    const Shape shape = RandomShape(&generator);
    const Tensor in(kDtypes[Below(&generator, 3)], shape,
                    RandomContents(shape.elements(), &generator));
    const Dtype out_dtype = kDtypes[Below(&generator, 3)];
    const Context context = RandomContext(&generator);

    ASSERT_TRUE(UseKernelTarget(simplest).ok());
    uint64_t nonfinite = 0;
    const std::vector<std::byte> blob = MustEncode(*codec, in.view(), context, &nonfinite);
    const Decoded decoded = DecodeTo(*codec, blob, out_dtype, shape);
    ASSERT_TRUE(decoded.status.ok()) << decoded.status;
    std::vector<std::byte> damaged = blob;
    Damage(&generator, &damaged);
    Decoded strange = DecodeTo(*codec, damaged, out_dtype, shape);
    MakeNansEqual(out_dtype, &strange.bytes);

    for (const std::string& target : others) {
      const std::string where =
          fmt::format("round {}: {} on {}, {} x {} x {} of {}", round, name, target, shape.samples,
                      shape.tokens, shape.channels, ToString(in.view().dtype));
      ASSERT_TRUE(UseKernelTarget(target).ok());
      ASSERT_EQ(KernelTarget(), target);
      uint64_t found = 0;
      ASSERT_TRUE(MustEncode(*codec, in.view(), context, &found) == blob) << where;
      ASSERT_EQ(found, nonfinite) << where;
      ASSERT_TRUE(DecodeTo(*codec, blob, out_dtype, shape).bytes == decoded.bytes) << where;
      Decoded also_strange = DecodeTo(*codec, damaged, out_dtype, shape);
      MakeNansEqual(out_dtype, &also_strange.bytes);
      ASSERT_EQ(also_strange.status, strange.status) << where;
      ASSERT_TRUE(also_strange.bytes == strange.bytes) << where;
    }
  }
}

// Two visits of the same samples: what is remembered, and the differences to it.
TEST_F(EveryTarget, RemembersTheSame) {
  std::mt19937 generator(20261123);
  for (int round = 0; round < 20; ++round) {
    const auto codec = MustParse(fmt::format("aqsgd:bits={}", 2 + 2 * (round % 4)));
    Shape shape = RandomShape(&generator);
    shape.samples = 2;
    const Tensor first(Dtype::kF32, shape, RandomContents(shape.elements(), &generator));
    const Tensor second(Dtype::kBf16, shape, RandomContents(shape.elements(), &generator));
    std::vector<std::vector<std::byte>> expected;
    for (const std::string& target : KernelTargets()) {
      ASSERT_TRUE(UseKernelTarget(target).ok());
      MemoryStore sent(3, codec->MessageBytes(shape));
      MemoryStore received(3, codec->MessageBytes(shape));
      const std::vector<uint64_t> ids = {2, 0};
      Context context;
      context.sample_ids = ids;
      std::vector<std::vector<std::byte>> seen;
      for (const Tensor* tensor : {&first, &second}) {
        context.messages = &sent;
        seen.push_back(MustEncode(*codec, tensor->view(), context));
        context.messages = &received;
        Tensor out(Dtype::kF32, shape);
        const AlignedBytes workspace(codec->WorkspaceBytes(shape));
        const Status status =
            codec->Decode(seen.back(), context, workspace.span(), out.mutable_view());
        ASSERT_TRUE(status.ok()) << status;
        const auto* bytes = static_cast<const std::byte*>(out.view().data);
        seen.emplace_back(bytes, bytes + out.view().size_bytes());
        for (const uint64_t id : ids) {
          seen.emplace_back(sent.Read(id).begin(), sent.Read(id).end());
          ASSERT_TRUE(std::ranges::equal(sent.Read(id), received.Read(id))) << target;
        }
      }
      if (expected.empty()) expected = seen;
      ASSERT_TRUE(seen == expected) << codec->name() << " on " << target << ", round " << round;
    }
  }
}

// Multiples of one tile: their entropies are equal but for the rounding of each operation on the
// way, so that one that is rounded otherwise (a fused multiply-add) soon gives other tiles 4 bits.
TEST_F(EveryTarget, RoundsEntropiesAlike) {
  const std::vector<std::string> targets = KernelTargets();
  std::mt19937 generator(3);
  for (int round = 0; round < 60; ++round) {
    const uint32_t tile = 32u << (round % 3);
    const auto codec = MustParse(fmt::format("tah:p=0.5,tile={}", tile));
    const Shape shape{1, 12, 512};
    const std::vector<float> base = Activations(tile, generator());
    std::vector<float> values(shape.elements());
    for (size_t first = 0; first < values.size(); first += tile) {
      const float factor = 1.0f + static_cast<float>(Below(&generator, 1u << 20)) * 0x1p-20f;
      for (size_t k = 0; k < tile; ++k) values[first + k] = base[k] * factor;
    }
    const Tensor in(Dtype::kF32, shape, values);
    ASSERT_TRUE(UseKernelTarget(targets.back()).ok());
    const std::vector<std::byte> blob = MustEncode(*codec, in.view());
    for (const std::string& target : targets) {
      ASSERT_TRUE(UseKernelTarget(target).ok());
      ASSERT_TRUE(MustEncode(*codec, in.view()) == blob) << target << ", round " << round;
    }
  }
}

// Pointers without any alignment beyond the element's, into the middle of a larger buffer.
TEST_F(EveryTarget, NeedsNoAlignmentAndWritesNoByteTooMany) {
  for (const std::string& target : KernelTargets()) {
    ASSERT_TRUE(UseKernelTarget(target).ok());
    for (const char* name :
         {"none", "fp16", "bf16", "fixed:bits=9", "fixed:bits=4,tile=32", "tah", "tah:alloc=token",
          "tah:tile=32,rounding=stochastic", "gauss", "gauss:bits=3,block=64", "aqsgd:bits=4"}) {
      const auto codec = MustParse(name);
      const Shape shape{2, 3, 192};
      const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), 5));
      const std::vector<std::byte> expected = MustEncode(*codec, in.view());
      for (size_t shift = 1; shift < 5; ++shift) {
        const size_t elements = shape.elements();
        std::vector<float> floats(elements + 8, 77.0f);
        std::memcpy(floats.data() + shift, in.view().data, elements * sizeof(float));
        std::vector<std::byte> blob(expected.size() + 8, std::byte{0x5a});
        const AlignedBytes workspace(codec->WorkspaceBytes(shape));
        EncodeResult result;
        ASSERT_TRUE(codec
                        ->Encode({floats.data() + shift, Dtype::kF32, shape}, {}, workspace.span(),
                                 std::span(blob).subspan(shift, expected.size()), &result)
                        .ok());
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), blob.data() + shift));
        ASSERT_EQ(blob[shift - 1], std::byte{0x5a});
        ASSERT_EQ(blob[shift + expected.size()], std::byte{0x5a});
        ASSERT_TRUE(codec
                        ->Decode(std::span(blob).subspan(shift, expected.size()), {},
                                 workspace.span(), {floats.data() + shift, Dtype::kF32, shape})
                        .ok());
        ASSERT_EQ(floats[shift - 1], 77.0f) << name << " on " << target;
        ASSERT_EQ(floats[shift + elements], 77.0f) << name << " on " << target;
      }
    }
  }
}

TEST_F(EveryTarget, IsChosenByItsName) {
  for (const std::string& target : KernelTargets()) {
    ASSERT_TRUE(UseKernelTarget(target).ok());
    EXPECT_EQ(KernelTarget(), target);
  }
  ASSERT_TRUE(UseKernelTarget("").ok());
  EXPECT_EQ(KernelTarget(), KernelTargets().front());
  EXPECT_EQ(UseKernelTarget("AVX9").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::codec
