// A sample's exponent, with which codecs scale the sample to a fixed range, and constants for
// rounding. Arithmetic only: CPU and GPU kernels share this file.
#pragma once

#include <cstdint>

#include "codec/convert.h"

namespace longhaul::codec {

// 1.5 x 2^23: adding and subtracting it rounds |u| < 2^22 to the nearest integer, ties to even.
inline constexpr float kRoundMagic = 12582912.0f;
inline constexpr uint32_t kRoundMagicBits = 0x4b400000;

// Rounds of Philox4x32 for stochastic rounding (rounding.h), and 16-bit numbers from one block.
inline constexpr unsigned kNoiseRounds = 7;
inline constexpr int kNoisesOfBlock = 8;

// Returns a sample's exponent c: 2^c scales the sample's largest finite magnitude, given as bits of
// fp32, into [2^top, 2^(top + 1)). c is 0 if that magnitude is 0. `top` must be 11 or 12; so
// -116 <= c <= 161.
inline constexpr int kMinExponent = -116, kMaxExponent = 161;
inline constexpr int SampleExponent(uint32_t largest_bits, int top) {
  return largest_bits == 0 ? 0 : top - FloorLog2(largest_bits);
}

// Multiplies by 2^-c, with two factors that are both normal numbers of fp32.
struct ScaleBack {
  constexpr explicit ScaleBack(int c) : first(Pow2(-(c - c / 2))), second(Pow2(-(c / 2))) {}
  constexpr float operator()(float value) const { return value * first * second; }
  float first, second;
};

}  // namespace longhaul::codec
