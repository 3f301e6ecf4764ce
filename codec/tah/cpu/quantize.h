// Steps 3 to 5 of format.h for one tile.
#ifndef LONGHAUL_CODEC_TAH_CPU_QUANTIZE_H_
#define LONGHAUL_CODEC_TAH_CPU_QUANTIZE_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "codec/tah/cpu/hadamard.h"
#include "codec/tile.h"

namespace longhaul::codec::tah::cpu {

inline constexpr uint16_t kTransformed = 0x8000;

// What of a tile is stored beside its codes.
struct TileMeta {
  uint16_t scale = 0;  // fp16, with kTransformed
  uint16_t zero = 0;   // fp16
  uint32_t pivot = 0;
};

// Step 3. True if the tile was transformed.
template <int kTile>
inline bool TransformOutlier(float tau, float* values, uint32_t* pivot) {
  const auto largest = static_cast<int32_t>(LargestMagnitude<kTile>(values));
  int32_t position = kTile;
  for (int32_t k = 0; k < kTile; ++k) {
    const int32_t bits = std::bit_cast<int32_t>(values[k]) & 0x7fffffff;
    const int32_t candidate = bits == largest ? k : kTile;
    position = candidate < position ? candidate : position;
  }
  int32_t second = 0;
  for (int32_t k = 0; k < kTile; ++k) {
    const int32_t bits = k == position ? 0 : std::bit_cast<int32_t>(values[k]) & 0x7fffffff;
    second = bits > second ? bits : second;
  }
  if (!(std::bit_cast<float>(largest) > tau * std::bit_cast<float>(second))) return false;
  std::swap(values[0], values[position]);
  Hadamard<kTile>(values);
  *pivot = static_cast<uint32_t>(position);
  return true;
}

// Folds halves; minima and maxima do not depend on the order but for the sign of zero, which the
// caller takes away.
template <int kCount>
inline void FoldRange(float* low, float* high) {
  if constexpr (kCount > 1) {
    for (int k = 0; k < kCount / 2; ++k) {
      low[k] = low[k + kCount / 2] < low[k] ? low[k + kCount / 2] : low[k];
      high[k] = high[k + kCount / 2] > high[k] ? high[k + kCount / 2] : high[k];
    }
    FoldRange<kCount / 2>(low, high);
  }
}

// Steps 4 and 5. `noise`: null for rounding to nearest.
template <int kTile>
inline void Quantize(const float* values, int bits, const float* noise, TileMeta* meta,
                     uint8_t* codes) {
  alignas(64) float low[kTile];
  alignas(64) float high[kTile];
  std::copy_n(values, kTile, low);
  std::copy_n(values, kTile, high);
  FoldRange<kTile>(low, high);
  const float minimum = low[0] + 0.0f;
  const float maximum = high[0] + 0.0f;
  const auto top = static_cast<float>((1 << bits) - 1);
  float scale = 0;
  float zero = 0;
  if (noise == nullptr) {
    meta->zero = F32ToF16(minimum);
    meta->scale = F32ToF16((maximum - minimum) / top);
    zero = F16ToF32(meta->zero);
  } else {
    meta->zero = F32ToF16Down(minimum);
    zero = F16ToF32(meta->zero);
    meta->scale = F32ToF16Up((maximum - zero) / top);
  }
  scale = F16ToF32(meta->scale);
  if (!(scale > 0)) {
    std::fill_n(codes, kTile, uint8_t{0});
    return;
  }
  alignas(64) int32_t wide[kTile];
  alignas(64) float scaled[kTile];
  for (int k = 0; k < kTile; ++k) {
    float u = (values[k] - zero) / scale;
    u = u < 0.0f ? 0.0f : u;
    scaled[k] = u > top ? top : u;
  }
  if (noise == nullptr) {
    for (int k = 0; k < kTile; ++k) {
      wide[k] =
          static_cast<int32_t>(std::bit_cast<uint32_t>(scaled[k] + kRoundMagic) - kRoundMagicBits);
    }
  } else {
    const int32_t limit = (1 << bits) - 1;
    for (int k = 0; k < kTile; ++k) {
      const auto floor = static_cast<int32_t>(scaled[k] + noise[k]);
      wide[k] = floor > limit ? limit : floor;
    }
  }
  for (int k = 0; k < kTile; ++k) codes[k] = static_cast<uint8_t>(wide[k]);
}

// Back: codes to values of the scaled sample. Not for tiles that are not finite.
template <int kTile>
inline void Dequantize(const uint8_t* codes, const TileMeta& meta, float* values) {
  const float scale = F16ToF32(meta.scale & 0x7fff);
  const float zero = F16ToF32(meta.zero);
  for (int k = 0; k < kTile; ++k) {
    const float product = static_cast<float>(static_cast<int32_t>(codes[k])) * scale;
    values[k] = product + zero;
  }
  if ((meta.scale & kTransformed) != 0) {
    Hadamard<kTile>(values);
    std::swap(values[0], values[meta.pivot]);
  }
}

}  // namespace longhaul::codec::tah::cpu

#endif  // LONGHAUL_CODEC_TAH_CPU_QUANTIZE_H_
