// Conversions to and from fp16 and bf16 (base/half.h), fp16 rounded up or down, and powers of two.
// Results have the same bits on every machine.
#pragma once

#include <bit>
#include <cstdint>

#include "base/half.h"

namespace longhaul::codec {

using longhaul::Bf16ToF32;
using longhaul::F16ToF32;
using longhaul::F32ToBf16;
using longhaul::F32ToF16;
using longhaul::kF16Nan;
using longhaul::kF32Infinity;

// Returns the smallest fp16 number that is not below `value` (finite, >= 0, below 65504).
inline constexpr uint16_t F32ToF16Up(float value) {
  const uint16_t half = F32ToF16(value);
  return static_cast<uint16_t>(F16ToF32(half) < value ? half + 1 : half);
}

// Returns the largest fp16 number that is not above `value` (finite, magnitude below 65504).
inline constexpr uint16_t F32ToF16Down(float value) {
  const uint16_t half = F32ToF16(value);
  if (!(F16ToF32(half) > value)) return half;
  if ((half & 0x7fff) == 0) return 0x8001;
  return static_cast<uint16_t>((half & 0x8000) != 0 ? half + 1 : half - 1);
}

// Returns 2^exponent, -126 <= exponent <= 127.
inline constexpr float Pow2(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// Multiplies by 2^exponent, -126 <= exponent <= 254, and rounds at most once. fp32 has no factor
// above 2^127, so larger factors are applied as two powers of two, one after the other.
struct ScaleUp {
  constexpr explicit ScaleUp(int exponent)
      : first(Pow2(exponent < 127 ? exponent : 127)),
        second(Pow2(exponent < 127 ? 0 : exponent - 127)) {}
  constexpr float operator()(float value) const { return value * first * second; }
  float first, second;
};

// Returns floor(log2(value)). `magnitude_bits`: the bits of value, which must be finite and > 0. It
// may be subnormal.
inline constexpr int FloorLog2(uint32_t magnitude_bits) {
  const int exponent = static_cast<int>(magnitude_bits >> 23);
  if (exponent != 0) return exponent - 127;
  return static_cast<int>(std::bit_width(magnitude_bits)) - 150;
}

}  // namespace longhaul::codec
