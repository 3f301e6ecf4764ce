// Properties that hold for all inputs: scale invariance, sizes, error bounds.
#include <hwy/targets.h>

#include <limits>
#include <random>

#include "codec/fixed/format.h"
#include "codec/fixed/reference.h"
#include "codec/gauss/format.h"
#include "codec/gauss/reference.h"
#include "codec/tah/format.h"
#include "codec/tah/reference.h"
#include "tests/conformance/codec/codec_fixture.h"

namespace longhaul::codec {
namespace {

class Scaling : public ::testing::TestWithParam<std::string> {};

// encode(2^k x) decodes to 2^k decode(x), bit for bit, as long as all is normal in fp32.
TEST_P(Scaling, ByAPowerOfTwoIsExact) {
  const auto codec = MustParse(GetParam());
  const Shape shape{2, 3, 200};
  const std::vector<float> values = Activations(shape.elements(), 31);
  const std::vector<float> base =
      RoundTrip(*codec, Tensor(Dtype::kF32, shape, values), Dtype::kF32);
  for (int k = -100; k <= 115; ++k) {
    std::vector<float> scaled = values;
    for (float& value : scaled) value = std::ldexp(value, k);
    const std::vector<float> out =
        RoundTrip(*codec, Tensor(Dtype::kF32, shape, scaled), Dtype::kF32);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], std::ldexp(base[i], k)) << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiled, Scaling,
                         ::testing::Values("fixed:bits=4", "fixed:bits=6,rounding=stochastic",
                                           "tah", "tah:rounding=stochastic",
                                           "tah:alloc=token,p=0.5", "tah:tile=128,tau=0", "gauss",
                                           "gauss:bits=2,block=64", "gauss:bits=6,block=512"),
                         TestName);

TEST(Sizes, FollowTheFormula) {
  std::mt19937 generator(3);
  const auto align = [](uint64_t bytes) { return (bytes + 15) / 16 * 16; };
  for (int round = 0; round < 200; ++round) {
    const Shape shape{1 + static_cast<uint32_t>(generator() % 3),
                      1 + static_cast<uint32_t>(generator() % 9),
                      1 + static_cast<uint32_t>(generator() % 700)};
    tah::Params params;
    params.tile = 32u << generator() % 3;
    params.alloc = params.tile * (generator() % 4);
    params.p_65536 = static_cast<uint32_t>(generator() % 65537);
    const uint64_t b = shape.samples;
    const uint64_t g = params.tile;
    const uint64_t t = (shape.channels + g - 1) / g;
    const uint64_t per_alloc = params.alloc == 0 ? t : std::min(params.alloc / g, t);
    const uint64_t tiles = shape.tokens * t;
    const uint64_t allocs = shape.tokens * ((t + per_alloc - 1) / per_alloc);
    const auto n4 = static_cast<uint64_t>(
        std::floor(static_cast<double>(params.p_65536 * allocs) / 65536 + 0.5));
    const auto log2 = static_cast<uint64_t>(std::log2(g));
    const uint64_t expected = 64 + align(2 * b) + 2 * align(2 * b * tiles) +
                              align(b * ((tiles * log2 + 63) / 64 * 8)) +
                              align(b * ((allocs + 63) / 64 * 8)) + align(b * tiles * 3 * g / 8) +
                              align(b * n4 * per_alloc * g / 8);
    EXPECT_EQ(tah::EncodedBytes(shape, params), expected);
    const auto codec = MustParse(tah::CodecString(params));
    EXPECT_EQ(codec->MaxEncodedBytes(shape), expected);
    EXPECT_EQ(
        MustEncode(*codec, Tensor(Dtype::kF32, shape, Activations(shape.elements(), 1)).view())
            .size(),
        expected);
  }
}

TEST(Sizes, OfGaussFollowTheFormula) {
  std::mt19937 generator(4);
  const auto align = [](uint64_t bytes) { return (bytes + 15) / 16 * 16; };
  for (int round = 0; round < 200; ++round) {
    const Shape shape{1 + static_cast<uint32_t>(generator() % 3),
                      1 + static_cast<uint32_t>(generator() % 9),
                      1 + static_cast<uint32_t>(generator() % 1200)};
    const gauss::Params params{.bits = 2 + static_cast<uint32_t>(generator() % 5),
                               .block = 64u << generator() % 4};
    uint64_t blocks = 0;  // of a token
    uint64_t padded = 0;
    for (uint64_t rest = shape.channels; rest > 0; ++blocks) {
      uint64_t size = 64;
      while (size < std::min<uint64_t>(rest, params.block)) size *= 2;
      padded += size;
      rest -= std::min(rest, size);
    }
    const uint64_t tokens = uint64_t{shape.samples} * shape.tokens;
    const uint64_t expected = 64 + align(2 * uint64_t{shape.samples}) + align(tokens * blocks) +
                              align(tokens * padded * params.bits / 8);
    EXPECT_EQ(gauss::EncodedBytes(shape, params), expected);
    const auto codec = MustParse(gauss::CodecString(params));
    EXPECT_EQ(
        MustEncode(*codec, Tensor(Dtype::kF32, shape, Activations(shape.elements(), 1)).view())
            .size(),
        expected);
  }
}

TEST(Sizes, ReachTheTargets) {
  const Shape gpt2_xl{1, 1024, 1600};
  const auto bits = [&](const std::string& text) {
    return static_cast<double>(MustParse(text)->MaxEncodedBytes(gpt2_xl)) * 8 /
           static_cast<double>(gpt2_xl.elements());
  };
  EXPECT_NEAR(bits("tah"), 3.8 + 39.0 / 64, 0.001);
  EXPECT_NEAR(bits("tah:p=1"), 4 + 39.0 / 64, 0.001);
  EXPECT_NEAR(bits("tah:p=0"), 3 + 39.0 / 64, 0.001);
  EXPECT_NEAR(bits("fixed:bits=6"), 6.25, 0.001);
  EXPECT_NEAR(bits("fixed:bits=4"), 4.25, 0.001);
  // 12 blocks of 128 and one of 64 a token.
  EXPECT_NEAR(bits("gauss"), 4 + 13 * 8 / 1600.0, 0.001);
  EXPECT_NEAR(bits("gauss:bits=3,block=64"), 3 + 8.0 / 64, 0.001);
  EXPECT_NEAR(bits("none"), 32, 0.001);
  EXPECT_NEAR(bits("bf16"), 16, 0.001);
}

// No element is further off than the grid allows: half a step, or a step for stochastic rounding,
// and what fp16's rounding of scale and zero can clamp away.
TEST(ErrorBounds, FixedStaysWithinTheStep) {
  for (uint32_t bits = 3; bits <= 10; ++bits) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      const fixed::Params params{bits, 64, rounding};
      const Shape shape{1, 64, 192};
      const std::vector<float> values = Activations(shape.elements(), bits);
      const auto codec = MustParse(fixed::CodecString(params));
      const Tensor in(Dtype::kF32, shape, values);
      const fixed::ReferenceResult tiles =
          fixed::Unpack(MustEncode(*codec, in.view()), shape, params);
      const std::vector<float> out = RoundTrip(*codec, in, Dtype::kF32);
      for (size_t k = 0; k < out.size(); ++k) {
        const double step = std::ldexp(tiles.tiles[k / 64].scale, -tiles.exponents[0]);
        const double top = step * ((1 << (bits - 1)) - 1);
        const double bound = rounding == Rounding::kNearest ? 0.5 * step + top * 0x1p-11 : step;
        ASSERT_LE(std::fabs(out[k] - values[k]), bound * 1.0001);
      }
    }
  }
}

// Error of the best quantizer with this many bits on the standard normal distribution.
double SmallestError(uint32_t bits) {
  const std::vector<double> levels = gauss::LloydMax(bits);
  double kept = 0;
  for (size_t j = 0; j < levels.size(); ++j) {
    const double low = j == 0 ? 0 : (levels[j - 1] + levels[j]) / 2;
    const double high = j + 1 < levels.size() ? (levels[j] + levels[j + 1]) / 2 : 40;
    const double share = std::erfc(low / std::sqrt(2)) - std::erfc(high / std::sqrt(2));
    kept += share * levels[j] * levels[j];
  }
  return std::sqrt(1 - kept);
}

// Whatever the values, but for what a block has in common with a row of the transform.
TEST(ErrorBounds, GaussIsAsGoodAsTheQuantizerOfNormalValues) {
  const Shape shape{1, 64, 1024};
  std::mt19937 generator(8);
  std::vector<std::vector<float>> tensors = {Activations(shape.elements(), 3)};
  for (int k = 0; k < 3; ++k) tensors.emplace_back(shape.elements());
  for (size_t k = 0; k < shape.elements(); ++k) {
    tensors[1][k] = static_cast<float>(generator() % 1000);  // a mean above its spread
    tensors[2][k] = static_cast<float>(k % 128) - 20;        // a ramp in every block
    tensors[3][k] = k / 1024 % 2 == 0 ? 3.5f : std::sin(0.1f * static_cast<float>(k));
  }
  for (uint32_t bits = gauss::kMinBits; bits <= gauss::kMaxBits; ++bits) {
    const auto codec = MustParse(gauss::CodecString({.bits = bits}));
    for (size_t t = 0; t < tensors.size(); ++t) {
      const Tensor in(Dtype::kF32, shape, tensors[t]);
      EXPECT_LE(RelativeL2(tensors[t], RoundTrip(*codec, in, Dtype::kF32)),
                1.25 * SmallestError(bits))
          << bits << " bits, tensor " << t;
    }
  }
}

TEST(ErrorBounds, UntransformedTahStaysWithinTheStep) {
  for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
    tah::Params params;
    params.rounding = rounding;
    const Shape shape{1, 64, 192};
    const std::vector<float> values = Activations(shape.elements(), 5);
    const auto codec = MustParse(tah::CodecString(params));
    const Tensor in(Dtype::kF32, shape, values);
    const tah::ReferenceResult tiles = tah::Unpack(MustEncode(*codec, in.view()), shape, params);
    const std::vector<float> out = RoundTrip(*codec, in, Dtype::kF32);
    size_t checked = 0;
    for (size_t k = 0; k < out.size(); ++k) {
      const tah::ReferenceTile& tile = tiles.tiles[k / 64];
      if (tile.transformed) continue;
      const double top = (1 << tile.bits) - 1;
      const double slack = 0x1p-11 * (std::fabs(tile.zero) + tile.scale * top) * 1.01;
      const double bound =
          rounding == Rounding::kNearest ? 0.5 * tile.scale + slack : 1.0001 * tile.scale;
      ASSERT_LE(std::fabs(out[k] - values[k]), std::ldexp(bound, -tiles.exponents[0]));
      ++checked;
    }
    EXPECT_GT(checked, out.size() / 4);
  }
}

// Every instruction set that this machine has and Highway's code without any.
TEST(InstructionSets, OfGaussGiveTheSameBytes) {
  const Shape shape{2, 16, 1000};
  std::vector<float> values = Activations(shape.elements(), 12);
  values[77] = std::numeric_limits<float>::quiet_NaN();
  std::fill_n(values.begin() + 2000, 1000, 0.0f);
  for (size_t k = 3000; k < 4000; ++k) values[k] *= 0x1p-140f;
  const Tensor in(Dtype::kF32, shape, values);
  const int64_t all = hwy::SupportedTargets();
  for (const char* text : {"gauss:bits=2,block=64", "gauss:bits=3,block=512", "gauss",
                           "gauss:bits=5,block=256", "gauss:bits=6"}) {
    const auto codec = MustParse(text);
    const std::vector<std::byte> blob = MustEncode(*codec, in.view());
    const std::vector<float> decoded = RoundTrip(*codec, in, Dtype::kF32);
    int tried = 0;
    for (int64_t rest = all; rest != 0; rest &= rest - 1, ++tried) {
      hwy::SetSupportedTargetsForTest(rest & -rest);
      hwy::GetChosenTarget().DeInit();
      EXPECT_EQ(MustEncode(*codec, in.view()), blob) << text << hwy::TargetName(rest & -rest);
      const std::vector<float> again = RoundTrip(*codec, in, Dtype::kF32);
      EXPECT_EQ(std::memcmp(again.data(), decoded.data(), decoded.size() * 4), 0) << text;
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
    EXPECT_GE(tried, 1);
  }
}

}  // namespace
}  // namespace longhaul::codec
