// The arithmetic of steps 4 to 6 of format.h. CPU and GPU kernels share this file.
#pragma once

#include <bit>
#include <cstdint>

#include "codec/convert.h"
#include "codec/gauss/levels.h"

namespace longhaul::codec::gauss {

// The scale bytes s of blocks without a scale. kZeroBlock: all elements are zero. kNonfiniteBlock:
// an element is not finite.
inline constexpr uint8_t kZeroBlock = 0, kNonfiniteBlock = 255;
// The scale byte of a sample's largest block is kTopByte to kTopByte + 3.
inline constexpr int kTopByte = 251;
// Values that encoders keep instead of q for blocks without a scale, in their scratch memory.
inline constexpr int16_t kZeroIndex = INT16_MIN, kNonfiniteIndex = INT16_MAX;

// If bit k % 32 of word k / 32 is set, element k of a block changes its sign before the encoder's
// transform and after the decoder's. These are the first 512 bits of pi's fraction.
inline constexpr uint32_t kSigns[16] = {
    0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0x082efa98, 0xec4e6c89,
    0x452821e6, 0x38d01377, 0xbe5466cf, 0x34e90c6c, 0xc0ac29b7, 0xc97c50dd, 0x3f84d5b5, 0xb5470917};

// The range of a sample's E. It follows from Q, which is in [-614, 512] for all numbers of fp32.
inline constexpr int kMinExponent = -154, kMaxExponent = 128;

// The mantissa bits of 2^(1/4) and 2^(3/4) in fp32, rounded up.
inline constexpr uint32_t kFirstQuarter = 0x1837f1, kThirdQuarter = 0x5744fd;

// Step 4: returns r. `sum_of_squares` is M, at least 2^-126.
inline constexpr int RootIndex(float sum_of_squares) {
  const auto bits = std::bit_cast<uint32_t>(sum_of_squares);
  const uint32_t fraction = bits & 0x7fffff;
  return 2 * (static_cast<int>(bits >> 23) - 127) + (fraction >= kFirstQuarter ? 1 : 0) +
         (fraction >= kThirdQuarter ? 1 : 0);
}

// Returns 2^(quarter / 4), quarter 0..3.
inline constexpr float QuarterOctave(int quarter) {
  return quarter == 0   ? 1.0f
         : quarter == 1 ? 1.18920708f
         : quarter == 2 ? 1.41421354f
                        : 1.68179286f;
}

// Returns 2^(-r / 4) for 0 <= r < 500.
inline constexpr float InverseRoot(int r) {
  const int quarter = r & 3;
  const float fraction = quarter == 0   ? 1.0f
                         : quarter == 1 ? 0.840896428f
                         : quarter == 2 ? 0.707106769f
                                        : 0.594603539f;
  return fraction * Pow2(-(r >> 2));
}

// The positive level L[j], and the threshold between the levels j - 1 and j. A |u| at or above the
// threshold of j belongs to level j or a higher one. These are not arrays, because GPU code cannot
// always read host arrays.
template <int kBits, int kJ>
inline constexpr float kLevel = Levels<kBits>::kPositive[kJ];
template <int kBits, int kJ>
inline constexpr float kThreshold = (kLevel<kBits, kJ - 1> + kLevel<kBits, kJ>)*0.5f;

// Returns E of a sample. `largest_q`: Q.
inline constexpr int ExponentOf(int largest_q) {
  return largest_q >> 2;
}
// Returns the scale byte s of a block with this q, which may be kZeroIndex or kNonfiniteIndex.
// `exponent`: E of the sample.
inline constexpr uint8_t ScaleByte(int q, int exponent) {
  if (q == kNonfiniteIndex) return kNonfiniteBlock;
  const int byte = q - 4 * exponent + kTopByte;
  return q == kZeroIndex || byte < 1 ? kZeroBlock : static_cast<uint8_t>(byte);
}

// The decoder's factor after the transform: 2^(d / 4) of format.h, as two factors that are both
// normal numbers of fp32.
struct BlockScale {
  // `byte`: the scale byte s, 1 to 254. `exponent`: E. `log2_size`: g.
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
