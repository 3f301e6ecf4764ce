// Stochastic rounding in fixed point, as format.h defines it. Arithmetic only: CPU and GPU kernels
// share it.
#pragma once

#include <cstdint>

namespace longhaul::codec::fixed {

// Bits of a quotient behind the point: together with the code's bits they fit the 23 of a float's
// mantissa.
inline constexpr uint32_t FractionBits(uint32_t bits) {
  return bits <= 7 ? 16 : 23 - bits;
}

// As floats, 2^23 and 2^23 + 2^(bits - 1) with FractionBits(bits) behind the point: an integer
// added to the bits is added to the number.
inline constexpr uint32_t kTwoTo23 = 0x4b000000, kMantissa = 0x007fffff;
inline constexpr uint32_t RandomOrigin(uint32_t bits) {
  return kTwoTo23 + (1u << (bits - 1 + FractionBits(bits)));
}

}  // namespace longhaul::codec::fixed
