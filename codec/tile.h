// Steps that the tiled codecs (fixed, tah, gauss) share. kTile is 32, 64, 128, 256 or 512; a buffer
// has kTile floats. Loops have constant trip counts and no order that matters (maxima of integers)
// or one that is stated, so that they vectorise to the same results.
#ifndef LONGHAUL_CODEC_TILE_H_
#define LONGHAUL_CODEC_TILE_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "codec/codec.h"
#include "codec/convert.h"
#include "codec/scale.h"

namespace longhaul::codec {

// The sections of a payload start at multiples of 16 bytes.
constexpr uint64_t AlignSection(uint64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

// Tiles [first, end) of a sample.
struct TileRange {
  uint32_t sample = 0;
  uint64_t first = 0, end = 0;
};

// Elements [offset, offset + count) of the tensor to the buffer, zeros after them.
template <int kTile>
inline void LoadTile(const TensorView& in, uint64_t offset, int count, float* out) {
  if (in.dtype == Dtype::kF32) {
    const float* source = static_cast<const float*>(in.data) + offset;
    std::memcpy(out, source, static_cast<size_t>(count) * sizeof(float));
  } else {
    uint16_t raw[kTile] = {};
    const uint16_t* source = static_cast<const uint16_t*>(in.data) + offset;
    std::memcpy(raw, source, static_cast<size_t>(count) * sizeof(uint16_t));
    if (in.dtype == Dtype::kBf16) {
      for (int k = 0; k < kTile; ++k) out[k] = Bf16ToF32(raw[k]);
    } else {
      for (int k = 0; k < kTile; ++k) out[k] = F16ToF32(raw[k]);
    }
  }
  for (int k = count; k < kTile; ++k) out[k] = 0;
}

// The first `count` of the buffer to elements [offset, offset + count). What lies outside of the
// dtype's range becomes its largest number: lossy codecs make no infinities out of numbers. NaNs
// stay.
template <int kTile>
inline void StoreTile(const MutableTensorView& out, uint64_t offset, int count, float* values) {
  const float limit = out.dtype == Dtype::kF32    ? std::numeric_limits<float>::max()
                      : out.dtype == Dtype::kBf16 ? std::bit_cast<float>(0x7f7f0000u)
                                                  : 65504.0f;
  for (int k = 0; k < kTile; ++k) {
    float value = values[k];
    value = value > limit ? limit : value;
    values[k] = value < -limit ? -limit : value;
  }
  if (out.dtype == Dtype::kF32) {
    float* target = static_cast<float*>(out.data) + offset;
    std::memcpy(target, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  uint16_t raw[kTile];
  if (out.dtype == Dtype::kBf16) {
    for (int k = 0; k < kTile; ++k) raw[k] = F32ToBf16(values[k]);
  } else {
    for (int k = 0; k < kTile; ++k) raw[k] = F32ToF16(values[k]);
  }
  uint16_t* target = static_cast<uint16_t*>(out.data) + offset;
  std::memcpy(target, raw, static_cast<size_t>(count) * sizeof(uint16_t));
}

template <int kTile>
inline void FillNan(float* values) {
  for (int k = 0; k < kTile; ++k) values[k] = std::numeric_limits<float>::quiet_NaN();
}

inline uint16_t LoadU16(const std::byte* bytes) {
  uint16_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline void StoreU16(uint16_t value, std::byte* bytes) {
  std::memcpy(bytes, &value, sizeof(value));
}

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_TILE_H_
