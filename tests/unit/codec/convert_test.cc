#include "codec/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "codec/half_reference.h"
#include "codec/planes.h"
#include "codec/tile.h"

namespace longhaul::codec {
namespace {

double HalfByDefinition(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const double magnitude = exponent == 31  ? (mantissa == 0 ? INFINITY : NAN)
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryOneWidensAndComesBack) {
  for (uint32_t half = 0; half < 65536; ++half) {
    const double expected = HalfByDefinition(static_cast<uint16_t>(half));
    const float wide = F16ToF32(static_cast<uint16_t>(half));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(wide))));
    } else {
      ASSERT_EQ(wide, expected);
      ASSERT_EQ(std::signbit(wide), std::signbit(expected));
      ASSERT_EQ(F32ToF16(wide), half);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x477ff000; bits += 997) {
    const auto value = std::bit_cast<float>(bits);
    ASSERT_EQ(F16ToF32(F32ToF16(value)), RoundToHalf(value, HalfRounding::kNearestEven)) << value;
    ASSERT_EQ(F32ToF16(-value), F32ToF16(value) | 0x8000);
  }
  // Exactly between two halves, normal and subnormal.
  for (uint32_t half = 0; half < 0x7bff; ++half) {
    const float low = F16ToF32(static_cast<uint16_t>(half));
    const float high = F16ToF32(static_cast<uint16_t>(half + 1));
    ASSERT_EQ(F32ToF16((low + high) / 2), half + (half & 1));
  }
  EXPECT_EQ(F32ToF16(65519.996f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(INFINITY), 0x7c00);
}

TEST(Half, RoundsUpAndDown) {
  for (uint32_t bits = 0; bits < 0x477fe000; bits += 9973) {
    const auto value = std::bit_cast<float>(bits);
    ASSERT_EQ(F16ToF32(F32ToF16Up(value)), RoundToHalf(value, HalfRounding::kUp));
    for (const float signed_value : {value, -value}) {
      ASSERT_EQ(F16ToF32(F32ToF16Down(signed_value)),
                RoundToHalf(signed_value, HalfRounding::kDown))
          << signed_value;
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x00000001u)), 0);
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::bit_cast<float>(0x7f800001u)))));
  for (uint32_t raw = 0; raw < 65536; ++raw) {
    const float wide = Bf16ToF32(static_cast<uint16_t>(raw));
    if (!std::isnan(wide)) {
      ASSERT_EQ(F32ToBf16(wide), raw);
    }
  }
}

TEST(Scaling, ReachesTheWholeRange) {
  for (int exponent = -126; exponent <= 254; ++exponent) {
    const ScaleUp scale(exponent);
    const float value = exponent > 120 ? 0x1p-149f : 1.0f;
    ASSERT_EQ(scale(value), std::ldexp(value, exponent)) << exponent;
  }
  for (int c = kMinExponent; c <= kMaxExponent; ++c) {
    ASSERT_EQ(ScaleBack(c)(4096.0f), std::ldexp(4096.0f, -c)) << c;
  }
}

TEST(FloorLog2, KnowsSubnormals) {
  EXPECT_EQ(FloorLog2(1), -149);
  EXPECT_EQ(FloorLog2(0x007fffff), -127);
  EXPECT_EQ(FloorLog2(0x00800000), -126);
  EXPECT_EQ(FloorLog2(std::bit_cast<uint32_t>(1.5f)), 0);
  EXPECT_EQ(FloorLog2(0x7f7fffff), 127);
}

TEST(Planes, EveryBitHasItsPlace) {
  for (int element = 0; element < 64; ++element) {
    for (int bit = 0; bit < 8; ++bit) {
      uint8_t codes[64] = {};
      codes[element] = static_cast<uint8_t>(1 << bit);
      for (int plane = 0; plane < 8; ++plane) {
        std::byte packed[8];
        PackPlane<64>(codes, plane, packed);
        for (int k = 0; k < 64; ++k) {
          const bool set = ((static_cast<unsigned>(packed[k / 8]) >> (k % 8)) & 1) != 0;
          ASSERT_EQ(set, k == element && plane == bit);
        }
        uint8_t back[64] = {};
        UnpackPlane<64>(packed, plane, back);
        for (int k = 0; k < 64; ++k) {
          ASSERT_EQ(back[k], k == element && plane == bit ? 1 << bit : 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::codec
