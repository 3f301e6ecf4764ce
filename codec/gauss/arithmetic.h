// The arithmetic of steps 4 to 6 of format.h for a block or a value, which CPU and GPU kernels
// share.
#pragma once

#include <bit>
#include <cstdint>

#include "codec/convert.h"
#include "codec/gauss/levels.h"

namespace longhaul::codec::gauss {

// Scale bytes of blocks without a scale.
inline constexpr uint8_t kZeroBlock = 0, kNonfiniteBlock = 255;
// A sample's largest scale is one of the four largest bytes.
inline constexpr int kTopByte = 251;
// Value in the scratch instead of q for a block without a scale.
inline constexpr int16_t kZeroIndex = INT16_MIN, kNonfiniteIndex = INT16_MAX;

// Bit k % 32 of word k / 32: element k of a block changes its sign before the first transform and
// after the second. The first 512 bits of pi's fraction.
inline constexpr uint32_t kSigns[16] = {
    0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0x082efa98, 0xec4e6c89,
    0x452821e6, 0x38d01377, 0xbe5466cf, 0x34e90c6c, 0xc0ac29b7, 0xc97c50dd, 0x3f84d5b5, 0xb5470917};

// E of a sample: Q is in [-614, 512] for all numbers of fp32.
inline constexpr int kMinExponent = -154, kMaxExponent = 128;

// The fractions of 2^(1/4) and 2^(3/4), rounded up.
inline constexpr uint32_t kFirstQuarter = 0x1837f1, kThirdQuarter = 0x5744fd;

// Step 4: r for M >= 2^-126.
inline constexpr int RootIndex(float sum_of_squares) {
  const auto bits = std::bit_cast<uint32_t>(sum_of_squares);
  const uint32_t fraction = bits & 0x7fffff;
  return 2 * (static_cast<int>(bits >> 23) - 127) + (fraction >= kFirstQuarter ? 1 : 0) +
         (fraction >= kThirdQuarter ? 1 : 0);
}

// 2^(quarter / 4), quarter 0..3.
inline constexpr float QuarterOctave(int quarter) {
  return quarter == 0   ? 1.0f
         : quarter == 1 ? 1.18920708f
         : quarter == 2 ? 1.41421354f
                        : 1.68179286f;
}

// 2^(-r / 4) for 0 <= r < 500.
inline constexpr float InverseRoot(int r) {
  const int quarter = r & 3;
  const float fraction = quarter == 0   ? 1.0f
                         : quarter == 1 ? 0.840896428f
                         : quarter == 2 ? 0.707106769f
                                        : 0.594603539f;
  return fraction * Pow2(-(r >> 2));
}

// The positive levels L, and the j-th threshold, j from 1: |u| at or above it belongs to level j or
// above. Scalars by index, because GPU code cannot always read a host array.
template <int kBits, int kJ>
inline constexpr float kLevel = Levels<kBits>::kPositive[kJ];
template <int kBits, int kJ>
inline constexpr float kThreshold = (kLevel<kBits, kJ - 1> + kLevel<kBits, kJ>)*0.5f;

// Step 6: E of a sample with the given largest q, and a block's byte.
inline constexpr int ExponentOf(int largest_q) {
  return largest_q >> 2;
}
inline constexpr uint8_t ScaleByte(int q, int exponent) {
  if (q == kNonfiniteIndex) return kNonfiniteBlock;
  const int byte = q - 4 * exponent + kTopByte;
  return q == kZeroIndex || byte < 1 ? kZeroBlock : static_cast<uint8_t>(byte);
}

// The factor after the second transform: 2^(d / 4), in two steps, both normal.
struct BlockScale {
  // `byte` is a scale, 1..254; log2_size: g.
  constexpr BlockScale(int byte, int exponent, int log2_size) {
    const int d = 4 * exponent + byte - kTopByte - 2 * log2_size;
    const int power = d >> 2;
    first = QuarterOctave(d & 3) * Pow2(power - power / 2);
    second = Pow2(power / 2);
  }
  constexpr float operator()(float value) const { return value * first * second; }
  float first = 1, second = 1;
};

}  // namespace longhaul::codec::gauss
