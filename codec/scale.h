// The exponent by which codecs scale one sample of a tensor to a fixed range, and constants for
// rounding. Arithmetic only: CPU and GPU kernels share this file.
#pragma once

#include <cstdint>

#include "codec/convert.h"

namespace longhaul::codec {

// 1.5 x 2^23. (u + kRoundMagic) - kRoundMagic is u rounded to the nearest integer, ties to even, if
// |u| < 2^22.
inline constexpr float kRoundMagic = 12582912.0f;
inline constexpr uint32_t kRoundMagicBits = 0x4b400000;

// For stochastic rounding (rounding.h): rounds of Philox4x32, and 16-bit numbers in a block.
inline constexpr unsigned kNoiseRounds = 7;
inline constexpr int kNoisesOfBlock = 8;

// Returns a sample's exponent c: 2^c scales the sample's largest magnitude into
// [2^top, 2^(top + 1)). c is 0 if this magnitude is 0. `largest_bits`: the magnitude as bits of
// fp32; it must be finite. `top` must be 11 or 12; so -116 <= c <= 161.
inline constexpr int kMinExponent = -116, kMaxExponent = 161;
inline constexpr int SampleExponent(uint32_t largest_bits, int top) {
  return largest_bits == 0 ? 0 : top - FloorLog2(largest_bits);
}

// Multiplies by 2^-c, as two factors that are both normal numbers of fp32.
struct ScaleBack {
  constexpr explicit ScaleBack(int c) : first(Pow2(-(c - c / 2))), second(Pow2(-(c / 2))) {}
  constexpr float operator()(float value) const { return value * first * second; }
  float first, second;
};

}  // namespace longhaul::codec
