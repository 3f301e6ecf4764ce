// taco: the 8-bit formats to the bit, its errors at every size of elements, and the reference.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "codec/blob.h"
#include "codec/taco/arithmetic.h"
#include "codec/taco/reference.h"
#include "random_codecs.h"

namespace longhaul::codec {
namespace {

using taco::Format;

constexpr Format kFormats[] = {Format::kE4m3, Format::kE5m2, Format::kInt8};

template <Format kFormat>
void ExpectNearest(float value) {
  const uint8_t code = taco::ToCode<kFormat>(value);
  ASSERT_TRUE(taco::IsNumber<kFormat>(code)) << value;
  const float got = taco::FromCode<kFormat>(code);
  ASSERT_EQ(double{got}, taco::NearestNumber(kFormat, double{value})) << value;
  if (kFormat != Format::kInt8) {
    ASSERT_EQ(std::signbit(got), std::signbit(value)) << value;
  }
}

template <Format kFormat>
void CheckFormat() {
  SCOPED_TRACE(std::string(taco::ToString(kFormat)));
  for (int k = 0; k < 256; ++k) {
    const auto code = static_cast<uint8_t>(k);
    const double number = taco::NumberOf(kFormat, code);
    ASSERT_EQ(taco::IsNumber<kFormat>(code), !std::isnan(number)) << k;
    if (std::isnan(number)) continue;
    ASSERT_EQ(double{taco::FromCode<kFormat>(code)}, number) << k;
    if (kFormat == Format::kInt8 && code == 0x80) continue;  // no encoder writes it
    ASSERT_EQ(taco::ToCode<kFormat>(static_cast<float>(number)), code);
  }
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Bf16ToF32(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) ExpectNearest<kFormat>(value);
  }
  std::mt19937 random(1);
  for (int k = 0; k < 1'000'000; ++k) {
    const auto any = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(any)) ExpectNearest<kFormat>(any);
    // Where the formats have numbers.
    const uint32_t exponent = 127 - 20 + random() % 40;
    const auto near =
        std::bit_cast<float>((static_cast<uint32_t>(random()) & 0x807fffff) | exponent << 23);
    ExpectNearest<kFormat>(near);
    // In the middle of two of them, and next to it.
    const double one = taco::NumberOf(kFormat, static_cast<uint8_t>(random() % 0x7a));
    const double other = taco::NearestNumber(kFormat, one * 1.2 + 1e-9);
    const auto middle = static_cast<float>((one + other) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      ExpectNearest<kFormat>(value);
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(TacoFormats, RoundToTheNearestNumber) {
  CheckFormat<Format::kE4m3>();
  CheckFormat<Format::kE5m2>();
  CheckFormat<Format::kInt8>();
}

std::vector<float> NormalFloats(size_t count, double sigma, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, sigma);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(normal(random));
  return values;
}

std::vector<float> StudentT3(size_t count, double sigma, uint32_t seed) {
  std::mt19937 random(seed);
  std::student_t_distribution<double> student(3);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(sigma * student(random));
  return values;
}

double ErrorOf(const std::string& text, Dtype dtype, const std::vector<float>& values) {
  const Tensor in(dtype, {1, 1, static_cast<uint32_t>(values.size())}, values);
  return RelativeL2(in.values(), RoundTrip(*MustParse(text), in, Dtype::kF32));
}

TEST(TacoErrors, AreAtMost2Point7PercentAtEverySizeOfElements) {
  constexpr size_t kCount = 1 << 14;
  for (const uint32_t block : {32u, 64u, 128u, 256u, 512u}) {
    const std::string text = fmt::format("taco:block={}", block);
    for (int exponent = -8; exponent <= 8; ++exponent) {
      const double sigma = std::pow(10.0, exponent);
      for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
        const double normal = ErrorOf(text, dtype, NormalFloats(kCount, sigma, 1));
        EXPECT_LE(normal, 0.027) << text << " sigma " << sigma;
        EXPECT_GE(normal, 0.02) << text << " sigma " << sigma;  // 3 bits of mantissa have no less
        EXPECT_LE(ErrorOf(text, dtype, StudentT3(kCount, sigma, 2)), 0.027)
            << text << " scale " << sigma;
      }
    }
  }
}

// Down to where fp32's own steps are as coarse, and up to its end.
TEST(TacoErrors, AreTheSameFromSubnormalsToTheLargestNumbers) {
  constexpr size_t kCount = 1 << 12;
  const std::vector<float> values = NormalFloats(kCount, 1, 3);
  for (const char* format : {"e4m3", "e5m2", "int8"}) {
    for (const uint32_t block : {32u, 256u, 512u}) {
      const std::string text = fmt::format("taco:format={},block={}", format, block);
      const double usual = ErrorOf(text, Dtype::kF32, values);
      for (int exponent = -140; exponent <= 125;
           exponent += exponent > -90 && exponent < 100 ? 19 : 1) {
        std::vector<float> scaled = values;
        for (float& value : scaled) value = std::ldexp(value, exponent);
        const double error = ErrorOf(text, Dtype::kF32, scaled);
        // Elements below 2^-126 are rounded themselves, to multiples of 2^-149.
        const double own = exponent < -120 ? std::ldexp(1.0, -149 - exponent) : 0;
        EXPECT_NEAR(error, usual, 1e-6 + own) << text << " 2^" << exponent;
        if (exponent >= -90 && exponent <= 100) {
          EXPECT_EQ(error, usual) << text << " 2^" << exponent;
        }
      }
    }
  }
}

TEST(TacoErrors, BlocksOfTheLargestNumbersAreNumbers) {
  for (const char* format : {"e4m3", "e5m2", "int8"}) {
    for (const uint32_t block : {32u, 512u}) {
      const std::string text = fmt::format("taco:format={},block={}", format, block);
      std::vector<float> values(2048, std::numeric_limits<float>::max());
      EXPECT_LE(ErrorOf(text, Dtype::kF32, values), 1e-6) << text;
      std::mt19937 random(4);
      for (float& value : values) value = random() % 2 == 0 ? value : -value;
      EXPECT_LE(ErrorOf(text, Dtype::kF32, values), 0.06) << text;
      for (float& value : values) value = std::copysign(0x1.fep127f, value);  // bf16's largest
      EXPECT_LE(ErrorOf(text, Dtype::kBf16, values), 0.06) << text;
    }
  }
}

// H of a block's own codes is what it is, so only the scale is rounded anew.
TEST(TacoErrors, EncodingTheDecodedAgainChangesNextToNothing) {
  const std::vector<float> values = NormalFloats(4096, 1, 5);
  for (const Format format : kFormats) {
    const std::string text = fmt::format("taco:format={}", taco::ToString(format));
    const auto codec = MustParse(text);
    const Tensor in(Dtype::kF32, {1, 1, 4096}, values);
    const std::vector<float> once = RoundTrip(*codec, in, Dtype::kF32);
    EXPECT_LE(ErrorOf(text, Dtype::kF32, once), 1e-5) << text;
  }
}

struct ReferenceCase {
  std::string what;
  std::vector<float> values;
};

std::vector<ReferenceCase> ReferenceCases() {
  constexpr size_t kCount = 512 * 40 + 77;
  std::vector<ReferenceCase> cases = {{"normal", NormalFloats(kCount, 1, 6)},
                                      {"small", NormalFloats(kCount, 1e-8, 7)},
                                      {"large", NormalFloats(kCount, 1e8, 8)},
                                      {"student", StudentT3(kCount, 1, 9)},
                                      {"activations", Activations(kCount, 10)}};
  cases.push_back({"odd", NormalFloats(kCount, 1, 11)});
  std::vector<float>& odd = cases.back().values;
  std::fill_n(odd.begin() + 512, 1024, 0.0f);
  odd[2048] = std::numeric_limits<float>::infinity();
  odd[3000] = std::numeric_limits<float>::quiet_NaN();
  return cases;
}

TEST(TacoReference, Agrees) {
  for (const Format format : kFormats) {
    for (const uint32_t block : {32u, 64u, 128u, 256u, 512u}) {
      const taco::Params params{format, block};
      for (const auto& [what, values] : ReferenceCases()) {
        SCOPED_TRACE(taco::CodecString(params) + " " + what);
        const Shape shape{1, 1, static_cast<uint32_t>(values.size())};
        const auto codec = MustParse(taco::CodecString(params));
        const Tensor in(Dtype::kF32, shape, values);
        const std::vector<std::byte> blob = MustEncode(*codec, in.view());
        const auto got = taco::Unpack(blob, values.size(), params);
        const taco::ReferenceResult expected =
            taco::Reference(std::vector<double>(values.begin(), values.end()), params);
        ASSERT_EQ(got.size(), expected.blocks.size());
        uint64_t apart = 0, codes = 0;
        for (size_t k = 0; k < got.size(); ++k) {
          ASSERT_EQ(got[k].finite, expected.blocks[k].finite) << k;
          if (!got[k].finite) continue;
          ASSERT_NEAR(got[k].c, expected.blocks[k].c, 1e-6 * expected.blocks[k].c) << k;
          for (size_t i = 0; i < block; ++i, ++codes) {
            const double a = got[k].q[i], b = expected.blocks[k].q[i];
            if (a == b) continue;
            ++apart;
            // The next number of the format, or both next to zero.
            const double step = format == Format::kE5m2 ? 0.26 : 0.13;
            ASSERT_LE(std::fabs(a - b), std::max(step * std::max(std::fabs(a), std::fabs(b)),
                                                 format == Format::kInt8 ? 1.0 : 0x1p-9))
                << k << " " << i;
          }
        }
        EXPECT_LE(static_cast<double>(apart), 1e-4 * static_cast<double>(codes));
        Tensor out(Dtype::kF32, shape);
        ASSERT_TRUE(Decode(*codec, blob, &out).ok());
        const std::vector<float> decoded = out.values();
        double error = 0, norm = 0;
        for (size_t k = 0; k < decoded.size(); ++k) {
          ASSERT_EQ(std::isnan(decoded[k]), std::isnan(expected.decoded[k])) << k;
          if (std::isnan(decoded[k])) continue;
          error += std::pow(decoded[k] - expected.decoded[k], 2);
          norm += std::pow(expected.decoded[k], 2);
        }
        EXPECT_LE(std::sqrt(error / norm), 1e-3);
      }
    }
  }
}

// alpha and s of a block matter only as their ratio.
TEST(TacoReference, OneScaleDecodesToWhatTwoDecodeTo) {
  for (const Format format : kFormats) {
    for (const double tau : {0.3, 1.0, 100.0}) {
      for (const auto& [what, values] : ReferenceCases()) {
        const taco::ReferenceResult result = taco::Reference(
            std::vector<double>(values.begin(), values.end()), {format, 256}, {.tau = tau});
        double largest = 0;
        for (size_t k = 0; k < values.size(); ++k) {
          if (k % 256 == 0) {
            largest = 0;
            for (size_t i = k; i < std::min(k + 256, values.size()); ++i) {
              largest = std::max(largest, std::fabs(result.decoded[i]));
            }
          }
          ASSERT_EQ(std::isnan(result.decoded[k]), std::isnan(result.decoded_by_c[k]));
          if (std::isnan(result.decoded[k])) continue;
          // Three roundings of scales to fp32.
          ASSERT_NEAR(result.decoded[k], result.decoded_by_c[k], 3 * 0x1p-24 * largest)
              << what << " " << k;
        }
      }
    }
  }
}

// tau and eps do not reach the codes: only s sees them.
TEST(TacoReference, AlphaAndTauChangeNoCode) {
  const std::vector<float> values = NormalFloats(256 * 64, 1, 12);
  const std::vector<double> x(values.begin(), values.end());
  const taco::ReferenceResult usual = taco::Reference(x, {});
  for (const taco::Ablation& other : {taco::Ablation{.rescale = false}, taco::Ablation{.tau = 64},
                                      taco::Ablation{.epsilon = 1}}) {
    const taco::ReferenceResult result = taco::Reference(x, {}, other);
    uint64_t apart = 0;
    for (size_t k = 0; k < usual.blocks.size(); ++k) {
      for (size_t i = 0; i < 256; ++i) {
        apart += usual.blocks[k].q[i] != result.blocks[k].q[i] ? 1 : 0;
      }
    }
    EXPECT_LE(apart, 2u);  // in the middle of two numbers
  }
}

TEST(TacoBlobs, WithWhatNobodyWritesDecodeToNan) {
  const taco::Params params;
  const auto codec = MustParse("taco");
  const Shape shape{1, 1, 256 * 6};
  const Tensor in(Dtype::kF32, shape, NormalFloats(shape.elements(), 1, 13));
  std::vector<std::byte> blob = MustEncode(*codec, in.view());
  const size_t codes = kBlobHeaderBytes + taco::MakeLayout(shape.elements(), params).codes;
  const auto set_scale = [&](size_t block, float c) {
    std::memcpy(blob.data() + kBlobHeaderBytes + 4 * block, &c, 4);
  };
  blob[codes + 256 * 1 + 17] = std::byte{0x7f};
  blob[codes + 256 * 2 + 255] = std::byte{0xff};
  set_scale(3, std::numeric_limits<float>::infinity());
  set_scale(4, std::numeric_limits<float>::quiet_NaN());
  set_scale(5, std::numeric_limits<float>::max());
  Tensor out(Dtype::kF32, shape);
  ASSERT_TRUE(Decode(*codec, blob, &out).ok());
  const std::vector<float> decoded = out.values();
  for (size_t k = 0; k < decoded.size(); ++k) {
    const size_t block = k / 256;
    EXPECT_EQ(std::isnan(decoded[k]), block >= 1 && block <= 4) << k;
    EXPECT_FALSE(std::isinf(decoded[k])) << k;
  }
}

TEST(TacoBlobs, OfOtherParametersAreRefused) {
  const Shape shape{1, 1, 300};
  const Tensor in(Dtype::kF32, shape, NormalFloats(300, 1, 14));
  std::vector<std::byte> blob = MustEncode(*MustParse("taco"), in.view());
  for (const auto& [at, value] : {std::pair{32, 4}, {32, 0}, {33, 1}, {34, 16}, {35, 4}, {40, 1}}) {
    std::vector<std::byte> bad = blob;
    bad[static_cast<size_t>(at)] = static_cast<std::byte>(value);
    const auto codec = CodecOfBlob(bad);
    EXPECT_EQ(codec.status().code(), absl::StatusCode::kInvalidArgument) << at;
  }
  Tensor out(Dtype::kF32, shape);
  EXPECT_FALSE(Decode(*MustParse("taco:format=int8"), blob, &out).ok());
  EXPECT_FALSE(Decode(*MustParse("taco:block=128"), blob, &out).ok());
}

}  // namespace
}  // namespace longhaul::codec
