// The range exponent of a sample and the rounding constant. Arithmetic only: CPU and GPU kernels
// share it.
#pragma once

#include <cstdint>

#include "codec/convert.h"

namespace longhaul::codec {

// 1.5 x 2^23: adding and subtracting it rounds |u| < 2^22 to the nearest integer, ties to even.
inline constexpr float kRoundMagic = 12582912.0f;
inline constexpr uint32_t kRoundMagicBits = 0x4b400000;

// Rounds of Philox4x32 for stochastic rounding (rounding.h), and numbers in one block.
inline constexpr unsigned kNoiseRounds = 7;
inline constexpr int kNoisesOfBlock = 8;

// Returns a sample's exponent c: 2^c scales its largest finite magnitude into [2^top, 2^(top + 1)),
// top = 11 or 12; 0 for a sample without one. So -116 <= c <= 161.
inline constexpr int kMinExponent = -116, kMaxExponent = 161;
inline constexpr int SampleExponent(uint32_t largest_bits, int top) {
  return largest_bits == 0 ? 0 : top - FloorLog2(largest_bits);
}

// Multiplies by 2^-c, in two steps whose factors are both normal numbers of fp32.
struct ScaleBack {
  constexpr explicit ScaleBack(int c) : first(Pow2(-(c - c / 2))), second(Pow2(-(c / 2))) {}
  constexpr float operator()(float value) const { return value * first * second; }
  float first, second;
};

}  // namespace longhaul::codec
