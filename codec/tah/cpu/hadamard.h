// Step 3 of format.h: what is one value among small ones becomes many of one size, and back.
#ifndef LONGHAUL_CODEC_TAH_CPU_HADAMARD_H_
#define LONGHAUL_CODEC_TAH_CPU_HADAMARD_H_

#include <utility>

namespace longhaul::codec::tah::cpu {

template <int kTile>
inline constexpr float kInverseRoot = kTile == 32   ? 0.176776695f
                                      : kTile == 64 ? 0.125f
                                                    : 0.0883883476f;

// One butterfly with neighbours, its results to the lower and upper half. log2(kTile) of these are
// the butterflies of distance 1, 2, ..., kTile / 2 in place: each one rotates the bits of the index
// by one, and the last one brings them home. Loads and stores stay contiguous.
template <int kTile>
inline void Butterfly(const float* in, float* out) {
  for (int k = 0; k < kTile / 2; ++k) {
    const float a = in[2 * k];
    const float b = in[2 * k + 1];
    out[k] = a + b;
    out[k + kTile / 2] = a - b;
  }
}

// In place.
template <int kTile>
inline void Hadamard(float* values) {
  alignas(64) float other[kTile];
  float* from = values;
  float* to = other;
  for (int distance = 1; distance < kTile; distance *= 2) {
    Butterfly<kTile>(from, to);
    std::swap(from, to);
  }
  for (int k = 0; k < kTile; ++k) values[k] = from[k] * kInverseRoot<kTile>;
}

}  // namespace longhaul::codec::tah::cpu

#endif  // LONGHAUL_CODEC_TAH_CPU_HADAMARD_H_
