// Step 1 of format.h: the entropy of a tile and the order of allocation tiles by it.
#ifndef LONGHAUL_CODEC_TAH_CPU_ENTROPY_H_
#define LONGHAUL_CODEC_TAH_CPU_ENTROPY_H_

#include <bit>
#include <cstdint>

#include "codec/convert.h"

namespace longhaul::codec::tah::cpu {

// log2 of a normal value > 0, to 6e-8 in [0.7, 1.4] and to half an ulp more elsewhere: y = 2^e (1 +
// f), f in [sqrt(1/2) - 1, sqrt(2) - 1), e + f P(f). Zero and subnormals give a finite number of no
// meaning (-127 for zero), which a product with the value makes nothing of. P interpolates log2(1 +
// f) / f at the 9 Chebyshev points of the interval; Horner's rule, a product and a sum per step.
inline constexpr float Log2(float value) {
  constexpr int32_t kSqrtHalf = 0x3f3504f3;
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t exponent = (bits - kSqrtHalf) >> 23;
  const float f = std::bit_cast<float>(bits - (exponent << 23)) - 1.0f;
  float sum = 0.123109683f;
  sum = sum * f + -0.205861881f;
  sum = sum * f + 0.216078222f;
  sum = sum * f + -0.239169881f;
  sum = sum * f + 0.287903249f;
  sum = sum * f + -0.360693276f;
  sum = sum * f + 0.480910748f;
  sum = sum * f + -0.721347451f;
  sum = sum * f + 1.44269502f;
  return static_cast<float>(exponent) + sum * f;
}

// Folds halves; destroys the buffer.
template <int kCount>
inline float FoldSum(float* values) {
  if constexpr (kCount > 1) {
    for (int k = 0; k < kCount / 2; ++k) values[k] = values[k] + values[k + kCount / 2];
    return FoldSum<kCount / 2>(values);
  }
  return values[0];
}

struct EntropySums {
  float n = 0;  // N: sum of y
  float l = 0;  // L: sum of y log2(y)
};

// Adds a tile; scale brings the allocation tile's largest magnitude into [2, 4).
template <int kTile>
inline void AddTile(const float* x, const ScaleUp& scale, EntropySums* sums) {
  alignas(64) float y[kTile];
  alignas(64) float terms[kTile];
  for (int k = 0; k < kTile; ++k) {
    const float magnitude =
        scale(std::bit_cast<float>(std::bit_cast<uint32_t>(x[k]) & 0x7fffffffu));
    y[k] = magnitude;
    terms[k] = magnitude * Log2(magnitude);
  }
  sums->n = sums->n + FoldSum<kTile>(y);
  sums->l = sums->l + FoldSum<kTile>(terms);
}

// In bits (the order is the same as in nats).
inline constexpr float Entropy(const EntropySums& sums) {
  return sums.n > 0 ? Log2(sums.n) - sums.l / sums.n : 0.0f;
}

// Sorts by falling entropy, then by rising index.
inline constexpr uint64_t SortKey(float entropy, uint32_t index) {
  const uint32_t bits = std::bit_cast<uint32_t>(entropy + 0.0f);  // -0 as +0
  const uint32_t rising = (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
  return (uint64_t{~rising} << 32) | index;
}

}  // namespace longhaul::codec::tah::cpu

#endif  // LONGHAUL_CODEC_TAH_CPU_ENTROPY_H_
