// Steps 1 to 5 of format.h for one block of kSize elements, and back.
#ifndef LONGHAUL_CODEC_GAUSS_CPU_BLOCK_H_
#define LONGHAUL_CODEC_GAUSS_CPU_BLOCK_H_

#include <cstring>

#include "codec/gauss/arithmetic.h"
#include "codec/gauss/format.h"
#include "codec/planes.h"
#include "codec/tile.h"

namespace longhaul::codec::gauss::cpu {

template <int kSize>
inline constexpr int kLog2 = std::bit_width(static_cast<unsigned>(kSize)) - 1;

// kSigns as the sign bits of floats.
struct SignMasks {
  constexpr SignMasks() {
    for (uint32_t k = 0; k < kMaxBlock; ++k) bits[k] = (kSigns[k / 32] >> (k % 32)) << 31;
  }
  alignas(64) uint32_t bits[kMaxBlock] = {};
};
inline constexpr SignMasks kSignMasks;

inline float FlipSign(float value, int k) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ kSignMasks.bits[k]);
}

// One butterfly with neighbours, its results to the lower and upper half; see tah/cpu/hadamard.h.
template <int kSize>
inline void Butterfly(const float* in, float* out) {
  for (int k = 0; k < kSize / 2; ++k) {
    const float a = in[2 * k];
    const float b = in[2 * k + 1];
    out[k] = a + b;
    out[k + kSize / 2] = a - b;
  }
}

// Step 3, kLog2 butterflies. Returns where the result is: `values` or `other`.
template <int kSize>
inline float* Transform(float* values, float* other) {
  float* from = values;
  float* to = other;
  for (int stage = 0; stage < kLog2<kSize>; ++stage) {
    Butterfly<kSize>(from, to);
    float* done = to;
    to = from;
    from = done;
  }
  return from;
}

// Destroys the buffer.
template <int kCount>
inline float FoldHalves(float* values) {
  if constexpr (kCount > 1) {
    for (int k = 0; k < kCount / 2; ++k) values[k] = values[k] + values[k + kCount / 2];
    return FoldHalves<kCount / 2>(values);
  }
  return values[0];
}

// Step 5.
template <int kBits, int kSize>
inline void Quantize(const float* y, float inverse_root, uint8_t* codes) {
  constexpr int kLevels = 1 << (kBits - 1);
  alignas(64) int32_t wide[kSize];
  for (int k = 0; k < kSize; ++k) {
    const auto bits = std::bit_cast<uint32_t>(y[k] * inverse_root);
    const auto magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
    int32_t code = static_cast<int32_t>(bits >> 31) << (kBits - 1);
#pragma GCC unroll 32
    for (int j = 1; j < kLevels; ++j) code += magnitude >= Threshold<kBits>(j) ? 1 : 0;
    wide[k] = code;
  }
  for (int k = 0; k < kSize; ++k) codes[k] = static_cast<uint8_t>(wide[k]);
}

// `count` elements of the tensor from `offset` on, as one block. Returns its q.
template <int kBits, int kSize>
int16_t EncodeBlock(const TensorView& in, uint64_t offset, int count, std::byte* planes) {
  alignas(64) float values[kSize];
  alignas(64) float other[kSize];
  LoadTile<kSize>(in, offset, count, values);
  const uint32_t largest = LargestMagnitude<kSize>(values);
  if (largest == 0 || largest >= kF32Infinity) {
    std::memset(planes, 0, kBits * kSize / 8);
    return largest == 0 ? kZeroIndex : kNonfiniteIndex;
  }
  const int exponent = FloorLog2(largest);
  const ScaleUp scale_up(1 - exponent);
  for (int k = 0; k < kSize; ++k) {
    values[k] = FlipSign(scale_up(values[k]), k);
    other[k] = values[k] * values[k];
  }
  const int root = RootIndex(FoldHalves<kSize>(other));
  alignas(64) uint8_t codes[kSize];
  Quantize<kBits, kSize>(Transform<kSize>(values, other), InverseRoot(root), codes);
  for (int bit = 0; bit < kBits; ++bit) PackPlane<kSize>(codes, bit, planes + bit * (kSize / 8));
  return static_cast<int16_t>(4 * (exponent - 1) + root - 2 * kLog2<kSize>);
}

template <int kBits>
struct SignedLevels {
  constexpr SignedLevels() {
    constexpr int kHalf = 1 << (kBits - 1);
    for (int j = 0; j < kHalf; ++j) {
      value[j] = Levels<kBits>::kPositive[j];
      value[kHalf + j] = -Levels<kBits>::kPositive[j];
    }
  }
  float value[1 << kBits] = {};
};

// `byte` as stored, of a sample with exponent E.
template <int kBits, int kSize>
void DecodeBlock(const std::byte* planes, uint8_t byte, int exponent, const MutableTensorView& out,
                 uint64_t offset, int count) {
  static constexpr SignedLevels<kBits> kLevels;
  alignas(64) float values[kSize] = {};
  alignas(64) float other[kSize];
  float* result = values;
  if (byte == kNonfiniteBlock) {
    FillNan<kSize>(values);
  } else if (byte != kZeroBlock) {
    alignas(64) uint8_t codes[kSize] = {};
    for (int bit = 0; bit < kBits; ++bit) {
      UnpackPlane<kSize>(planes + bit * (kSize / 8), bit, codes);
    }
    for (int k = 0; k < kSize; ++k) values[k] = kLevels.value[codes[k]];
    result = Transform<kSize>(values, other);
    const BlockScale scale(byte, exponent, kLog2<kSize>);
    for (int k = 0; k < kSize; ++k) result[k] = FlipSign(scale(result[k]), k);
  }
  StoreTile<kSize>(out, offset, count, result);
}

}  // namespace longhaul::codec::gauss::cpu

#endif  // LONGHAUL_CODEC_GAUSS_CPU_BLOCK_H_
