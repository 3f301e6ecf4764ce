// Converts fp16 and bf16 to fp32 and back by plain integer and fp32 operations, so that every
// machine gives the same bits. Keeps subnormals and rounds to nearest even. A NaN stays a NaN; the
// conversion from fp32 makes it quiet. Nothing branches on values, so that loops over these
// functions vectorize. Pure functions. fp16 and bf16 values are uint16_t with their bit patterns.
#pragma once

#include <bit>
#include <cstdint>

namespace longhaul {

inline constexpr uint32_t kF32Infinity = 0x7f800000;
inline constexpr uint16_t kF16Nan = 0x7e00;

inline constexpr float F16ToF32(uint16_t half) {
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  // Moves the exponent from bias 15 to 127; exact for subnormals too.
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t special = magnitude >= 0x0f800000 ? kF32Infinity : 0;  // infinity and NaN
  const uint32_t sign = (half & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

inline constexpr uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t sign = (bits >> 16) & 0x8000;
  // Adding 0.5 aligns the last bit of fp16's subnormals with the last bit of the sum.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude & 0x3fffffff) + 0.5f) - 0x3f000000;
  const uint32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;  // 65520 and above, and infinity
  half = magnitude > kF32Infinity ? kF16Nan : half;
  return static_cast<uint16_t>(half | sign);
}

inline constexpr float Bf16ToF32(uint16_t value) {
  return std::bit_cast<float>(uint32_t{value} << 16);
}

inline constexpr uint16_t F32ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > kF32Infinity ? quiet : rounded);
}

}  // namespace longhaul
