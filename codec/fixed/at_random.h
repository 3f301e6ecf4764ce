// Stochastic rounding of the codec fixed, as format.h defines it. Arithmetic only: CPU and GPU
// kernels share this file.
#pragma once

#include <cstdint>

namespace longhaul::codec::fixed {

// Returns n of format.h: the number of a quotient's bits behind the binary point. Together with the
// `bits` of a code these are at most 23, the bits of a float's mantissa.
inline constexpr uint32_t FractionBits(uint32_t bits) {
  return bits <= 7 ? 16 : 23 - bits;
}

// The bits of the float 2^23, and the mask of a float's mantissa. From 2^23 to 2^24 the floats are
// the integers, so adding an integer to the bits adds it to the number.
inline constexpr uint32_t kTwoTo23 = 0x4b000000, kMantissa = 0x007fffff;
// Returns the bits of the float 2^23 + 2^(bits - 1) 2^n, n = FractionBits(bits).
inline constexpr uint32_t RandomOrigin(uint32_t bits) {
  return kTwoTo23 + (1u << (bits - 1 + FractionBits(bits)));
}

}  // namespace longhaul::codec::fixed
