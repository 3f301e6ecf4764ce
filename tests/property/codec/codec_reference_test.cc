// The codecs agree with the double-precision references: the bit allocation differs only where the
// entropies are closer than fp32 resolves; for the same allocation at least 99.999% of the codes
// are the same and the rest are one step apart.
#include <algorithm>
#include <bit>

#include "codec/fixed/factory.h"
#include "codec/fixed/reference.h"
#include "codec/gauss/arithmetic.h"
#include "codec/gauss/factory.h"
#include "codec/gauss/reference.h"
#include "codec/tah/cpu/entropy.h"
#include "codec/tah/factory.h"
#include "codec/tah/reference.h"
#include "tests/conformance/codec/codec_fixture.h"

namespace longhaul::codec {
namespace {

std::function<double(uint64_t)> NoiseOf(const Context& context) {
  const RoundingNoise noise(context);
  return [noise](uint64_t index) {
    uint16_t block[8];
    noise.Fill(index / 8 * 8, 8, block);
    return double{RoundingNoise::Middle(block[index % 8])};
  };
}

std::vector<double> Widen(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

struct Agreement {
  uint64_t codes = 0, apart = 0, far_apart = 0;
};

void Compare(const std::vector<int>& expected, const std::vector<int>& got, Agreement* agreement) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t k = 0; k < got.size(); ++k) {
    ++agreement->codes;
    const int distance = std::abs(expected[k] - got[k]);
    if (distance > 0) ++agreement->apart;
    if (distance > 1) ++agreement->far_apart;
  }
}

void CheckAgreement(const Agreement& agreement) {
  EXPECT_EQ(agreement.far_apart, 0u);
  EXPECT_LE(static_cast<double>(agreement.apart), 1e-5 * static_cast<double>(agreement.codes))
      << agreement.apart << " of " << agreement.codes;
}

struct TahCase {
  tah::Params params;
  Shape shape;
  Dtype dtype;
  float scale;
};

class TahReference : public ::testing::TestWithParam<TahCase> {};

TEST_P(TahReference, Agrees) {
  const auto& [params, shape, dtype, scale] = GetParam();
  Context context;
  context.seed = 42;
  context.step = Step(7);
  const Tensor in(dtype, shape, Activations(shape.elements(), 17, scale));
  const std::vector<double> x = Widen(in.values());
  const auto codec = tah::Create(params);
  const std::vector<std::byte> blob = MustEncode(*codec, in.view(), context);
  const tah::ReferenceResult got = tah::Unpack(blob, shape, params);
  const tah::ReferenceResult expected =
      tah::Reference(x, shape, params, NoiseOf(context), &got.fours);
  EXPECT_EQ(got.exponents, expected.exponents);

  // The cut lies between the lowest chosen and the highest refused entropy of the reference.
  const size_t allocs = expected.fours.size() / shape.samples;
  for (size_t first = 0; first < expected.fours.size(); first += allocs) {
    double lowest_four = 1e9;
    double highest_three = -1e9;
    size_t fours_got = 0;
    size_t fours_expected = 0;
    for (size_t k = first; k < first + allocs; ++k) {
      (expected.fours[k] ? lowest_four : highest_three) =
          expected.fours[k] ? std::min(lowest_four, expected.entropies[k])
                            : std::max(highest_three, expected.entropies[k]);
      fours_got += got.fours[k] ? 1 : 0;
      fours_expected += expected.fours[k] ? 1 : 0;
    }
    EXPECT_EQ(fours_got, fours_expected);
    for (size_t k = first; k < first + allocs; ++k) {
      if (got.fours[k] == expected.fours[k]) continue;
      EXPECT_NEAR(expected.entropies[k], expected.fours[k] ? highest_three : lowest_four, 1e-5);
    }
  }

  ASSERT_EQ(got.tiles.size(), expected.tiles.size());
  Agreement agreement;
  size_t transformed = 0;
  size_t other_scale = 0;
  for (size_t t = 0; t < got.tiles.size(); ++t) {
    const tah::ReferenceTile& a = expected.tiles[t];
    const tah::ReferenceTile& b = got.tiles[t];
    ASSERT_EQ(a.transformed, b.transformed) << "tile " << t;
    ASSERT_EQ(a.pivot, b.pivot);
    ASSERT_EQ(a.bits, b.bits);
    transformed += a.transformed ? 1 : 0;
    other_scale += a.scale != b.scale || a.zero != b.zero ? 1 : 0;
    Compare(a.codes, b.codes, &agreement);
  }
  CheckAgreement(agreement);
  EXPECT_LE(other_scale, got.tiles.size() / 500 + 1);
  if (std::isfinite(params.tau)) {
    EXPECT_GT(transformed, 0u);
  }

  Tensor out(Dtype::kF32, shape);
  ASSERT_TRUE(Decode(*codec, blob, &out).ok());
  const std::vector<float> decoded = out.values();
  std::vector<float> wanted(expected.decoded.begin(), expected.decoded.end());
  EXPECT_LE(RelativeL2(wanted, decoded), 2e-4);
}

std::vector<TahCase> TahCases() {
  const tah::Params standard;
  const auto with = [&](auto change) {
    tah::Params params = standard;
    change(params);
    return params;
  };
  return {
      {standard, {2, 128, 1600}, Dtype::kF32, 1},
      {standard, {2, 128, 1600}, Dtype::kBf16, 1},
      {standard, {1, 64, 200}, Dtype::kF16, 0.01f},
      {standard, {2, 64, 768}, Dtype::kF32, 1e-6f},
      {with([](auto& p) { p.rounding = Rounding::kStochastic; }), {2, 64, 1600}, Dtype::kF32, 3},
      {with([](auto& p) { p.tile = p.alloc = 32; }), {2, 64, 720}, Dtype::kF32, 1e4f},
      {with([](auto& p) { p.tile = p.alloc = 128; }), {2, 64, 720}, Dtype::kF32, 1},
      {with([](auto& p) { p.alloc = tah::kWholeToken; }), {2, 256, 1600}, Dtype::kF32, 1},
      {with([](auto& p) { p.alloc = 192; }), {2, 64, 1000}, Dtype::kF32, 1},
      {with([](auto& p) { p.tau = 0; }), {1, 64, 1600}, Dtype::kF32, 1},
      {with([](auto& p) { p.tau = INFINITY; }), {1, 64, 1600}, Dtype::kF32, 1},
  };
}

INSTANTIATE_TEST_SUITE_P(Cases, TahReference, ::testing::ValuesIn(TahCases()));

TEST(FixedReference, Agrees) {
  Agreement agreement;  // over all settings: one code in 100,000 needs many
  for (uint32_t bits = fixed::kMinBits; bits <= fixed::kMaxBits; ++bits) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      for (const uint32_t tile : {32u, 64u, 128u}) {
        const fixed::Params params{bits, tile, rounding};
        const Shape shape{2, 32, 720};
        Context context;
        context.seed = bits;
        const Tensor in(Dtype::kF32, shape, Activations(shape.elements(), bits, 1e-5f));
        const auto codec = fixed::Create(params);
        const std::vector<std::byte> blob = MustEncode(*codec, in.view(), context);
        const fixed::ReferenceResult got = fixed::Unpack(blob, shape, params);
        const fixed::ReferenceResult expected =
            fixed::Reference(Widen(in.values()), shape, params, NoiseOf(context));
        EXPECT_EQ(got.exponents, expected.exponents);
        ASSERT_EQ(got.tiles.size(), expected.tiles.size());
        for (size_t t = 0; t < got.tiles.size(); ++t) {
          EXPECT_EQ(got.tiles[t].scale, expected.tiles[t].scale);
          Compare(expected.tiles[t].codes, got.tiles[t].codes, &agreement);
        }
        Tensor out(Dtype::kF32, shape);
        ASSERT_TRUE(Decode(*codec, blob, &out).ok());
        std::vector<float> wanted(expected.decoded.begin(), expected.decoded.end());
        EXPECT_LE(RelativeL2(wanted, out.values()), 1e-4);
      }
    }
  }
  CheckAgreement(agreement);
}

TEST(GaussReference, Agrees) {
  Agreement agreement;
  for (uint32_t bits = gauss::kMinBits; bits <= gauss::kMaxBits; ++bits) {
    for (uint32_t block = gauss::kMinBlock; block <= gauss::kMaxBlock; block *= 2) {
      const gauss::Params params{bits, block};
      const Shape shape{2, 32, 720};
      std::vector<float> values = Activations(shape.elements(), bits + block, 1e-5f);
      std::fill_n(values.begin(), 1440, 0.0f);
      for (size_t k = 1440; k < 2160; ++k) values[k] *= 0x1p-40f;
      for (size_t k = 2160; k < 2880; ++k) values[k] *= 0x1p-80f;  // too far below the others
      const Tensor in(Dtype::kF32, shape, values);
      const auto codec = gauss::Create(params);
      const std::vector<std::byte> blob = MustEncode(*codec, in.view());
      const gauss::ReferenceResult got = gauss::Unpack(blob, shape, params);
      const gauss::ReferenceResult expected = gauss::Reference(Widen(values), shape, params);
      EXPECT_EQ(got.exponents, expected.exponents);
      ASSERT_EQ(got.blocks.size(), expected.blocks.size());
      size_t zero = 0;
      for (size_t k = 0; k < got.blocks.size(); ++k) {
        ASSERT_EQ(got.blocks[k].byte, expected.blocks[k].byte) << "block " << k;
        zero += got.blocks[k].byte == 0 ? 1 : 0;
        Compare(expected.blocks[k].codes, got.blocks[k].codes, &agreement);
      }
      EXPECT_EQ(zero, 3 * ((720 + block - 1) / block));
      Tensor out(Dtype::kF32, shape);
      ASSERT_TRUE(Decode(*codec, blob, &out).ok());
      const std::vector<float> wanted(expected.decoded.begin(), expected.decoded.end());
      EXPECT_LE(RelativeL2(wanted, out.values()), 2e-3);  // a code that is one step apart
    }
  }
  CheckAgreement(agreement);
}

template <int kBits>
void ExpectLloydMax() {
  const std::vector<double> expected = gauss::LloydMax(kBits);
  ASSERT_EQ(expected.size(), std::size(gauss::Levels<kBits>::kPositive));
  for (size_t j = 0; j < expected.size(); ++j) {
    EXPECT_NEAR(gauss::Levels<kBits>::kPositive[j], expected[j], 3e-7) << kBits << " bits";
  }
}

TEST(GaussLevels, AreTheLloydMaxQuantizers) {
  ExpectLloydMax<2>();
  ExpectLloydMax<3>();
  ExpectLloydMax<4>();
  ExpectLloydMax<5>();
  ExpectLloydMax<6>();
}

TEST(GaussRootIndex, IsTheNearestQuarterOctave) {
  for (uint32_t bits = 0x3f800000; bits < 0x47000000; bits += 977) {  // 1 to 2^15
    const auto sum = std::bit_cast<float>(bits);
    ASSERT_EQ(gauss::RootIndex(sum), std::lround(2 * std::log2(double{sum}))) << sum;
    const double root = std::sqrt(double{sum});
    ASSERT_NEAR(root * gauss::InverseRoot(gauss::RootIndex(sum)), 1, 0.0906);
  }
  // Beside the two limits in an octave, to the last bit.
  for (const double limit : {std::exp2(0.25), std::exp2(0.75)}) {
    const auto near = static_cast<float>(limit);
    for (const float sum : {std::nextafterf(near, 0.0f), near, std::nextafterf(near, 4.0f)}) {
      EXPECT_EQ(gauss::RootIndex(sum), (sum > limit ? 1 : 0) + (limit > 1.5 ? 1 : 0));
    }
  }
}

TEST(Log2, IsAccurate) {
  for (uint32_t bits = 0x00800000; bits < 0x7f800000; bits += 4099) {
    const auto value = std::bit_cast<float>(bits);
    const double exact = std::log2(double{value});
    ASSERT_NEAR(tah::cpu::Log2(value), exact, 2e-7 + 6e-8 * std::fabs(exact)) << value;
  }
}

}  // namespace
}  // namespace longhaul::codec
