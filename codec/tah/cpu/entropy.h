// Step 1 of format.h: the entropy of a tile and the order of allocation tiles by entropy.
#pragma once

#include <bit>
#include <cstdint>

#include "codec/convert.h"

namespace longhaul::codec::tah::cpu {

// Constants of Log2, which returns log2(y) of a normal value y > 0. The error is at most
// 6e-8 plus half an ulp of the result. Let y = 2^e (1 + f) with f in
// [sqrt(1/2) - 1, sqrt(2) - 1). The result is e + f P(f). The polynomial P interpolates
// log2(1 + f) / f at the 9 Chebyshev points of this interval, and is computed by Horner's rule, one
// product and one sum a step. For zero, Log2 returns -127, and for subnormals another finite
// number that means nothing. This does no harm, because the entropy multiplies it by y.
inline constexpr int32_t kSqrtHalf = 0x3f3504f3;
inline constexpr float kLog2Terms[] = {0.123109683f,  -0.205861881f, 0.216078222f,
                                       -0.239169881f, 0.287903249f,  -0.360693276f,
                                       0.480910748f,  -0.721347451f, 1.44269502f};

// The same constants one by one, for GPU code, which cannot read a host array.
template <int kIndex>
inline constexpr float kLog2Term = kLog2Terms[kIndex];

inline constexpr float Log2(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t exponent = (bits - kSqrtHalf) >> 23;
  const float f = std::bit_cast<float>(bits - (exponent << 23)) - 1.0f;
  float sum = kLog2Term<0>;
  sum = sum * f + kLog2Term<1>;
  sum = sum * f + kLog2Term<2>;
  sum = sum * f + kLog2Term<3>;
  sum = sum * f + kLog2Term<4>;
  sum = sum * f + kLog2Term<5>;
  sum = sum * f + kLog2Term<6>;
  sum = sum * f + kLog2Term<7>;
  sum = sum * f + kLog2Term<8>;
  return static_cast<float>(exponent) + sum * f;
}

struct EntropySums {
  float n = 0;  // N: sum of y
  float l = 0;  // L: sum of y log2(y)
};

// Returns H of format.h, in bits.
inline constexpr float Entropy(const EntropySums& sums) {
  return sums.n > 0 ? Log2(sums.n) - sums.l / sums.n : 0.0f;
}

// Returns a key for sorting: a higher entropy gives a lower key.
inline constexpr int32_t SortKey(float entropy) {
  const auto bits = std::bit_cast<int32_t>(entropy + 0.0f);  // -0 as +0
  return bits < 0 ? bits & 0x7fffffff : ~bits;
}

}  // namespace longhaul::codec::tah::cpu
