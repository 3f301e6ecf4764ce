// Stochastic rounding of the codec fixed, as format.h defines it. Arithmetic only: CPU and GPU
// kernels share this file.
#pragma once

#include <cstdint>

namespace longhaul::codec::fixed {

// Returns n of format.h: how many bits a quotient keeps behind the binary point, if codes have
// `bits` bits. bits + n is at most 23, the number of bits of a float's mantissa.
inline constexpr uint32_t FractionBits(uint32_t bits) {
  return bits <= 7 ? 16 : 23 - bits;
}

// The bits of the float 2^23, and the mask of a float's mantissa. From 2^23 to 2^24 the floats are
// exactly the integers, so adding an integer to a float's bits adds the integer to the float.
inline constexpr uint32_t kTwoTo23 = 0x4b000000, kMantissa = 0x007fffff;
// Returns the bits of the float 2^23 + 2^(bits - 1) 2^n with n = FractionBits(bits).
inline constexpr uint32_t RandomOrigin(uint32_t bits) {
  return kTwoTo23 + (1u << (bits - 1 + FractionBits(bits)));
}

}  // namespace longhaul::codec::fixed
