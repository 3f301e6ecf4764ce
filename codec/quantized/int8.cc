#include "codec/quantized/int8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "codec/convert.h"
#include "codec/quantized/format.h"

namespace longhaul::codec::quantized {
namespace {

float InF16(float value) {
  return F16ToF32(F32ToF16(value));
}

// To the nearest integer, halves to even; for magnitudes up to 2^22. Unlike std::nearbyint, loops
// with it vectorize.
float Rounded(float value) {
  constexpr float kNoFraction = 0x1.8p23f;
  return value + kNoFraction - kNoFraction;
}

template <class T>
void Dequantize(const std::byte* stored, MatrixShape shape, uint64_t first_row, uint64_t end_row,
                T* out) {
  const auto* const elements =
      reinterpret_cast<const int8_t*>(stored + Int8Layout(shape.rows, shape.columns).elements);
  for (uint64_t row = first_row; row < end_row; ++row) {
    float absmax = 0;
    std::memcpy(&absmax, stored + 4 * row, sizeof(absmax));
    const int8_t* const from = elements + row * shape.columns;
    T* const to = out + row * shape.columns;
    for (uint64_t i = 0; i < shape.columns; ++i) {
      const float number = static_cast<float>(from[i]) * absmax * kInt8Step;
      if constexpr (std::is_same_v<T, float>) {
        to[i] = number;
      } else {
        to[i] = F32ToBf16(number);
      }
    }
  }
}

}  // namespace

bool Int8Quantize(std::span<const float> values, MatrixShape shape, uint64_t first_row,
                  uint64_t end_row, std::byte* stored) {
  auto* const elements =
      reinterpret_cast<int8_t*>(stored + Int8Layout(shape.rows, shape.columns).elements);
  for (uint64_t row = first_row; row < end_row; ++row) {
    const float* const from = values.data() + row * shape.columns;
    uint32_t largest = 0;  // the bits of magnitudes ascend as the magnitudes do
    for (uint64_t i = 0; i < shape.columns; ++i) {
      largest = std::max(largest, std::bit_cast<uint32_t>(InF16(from[i])) & 0x7fffffffu);
    }
    const auto absmax = std::bit_cast<float>(largest);
    if (!std::isfinite(absmax)) return false;
    std::memcpy(stored + 4 * row, &absmax, sizeof(absmax));
    int8_t* const to = elements + row * shape.columns;
    if (absmax == 0) {
      std::fill_n(to, shape.columns, int8_t{0});
      continue;
    }
    const float scale = 1.0f / absmax * 127.0f;  // so PyTorch divides a number by a tensor
    for (uint64_t i = 0; i < shape.columns; ++i) {
      to[i] = static_cast<int8_t>(static_cast<int32_t>(Rounded(InF16(from[i]) * scale)));
    }
  }
  return true;
}

void Int8Dequantize(const std::byte* stored, MatrixShape shape, uint64_t first_row,
                    uint64_t end_row, float* out) {
  Dequantize(stored, shape, first_row, end_row, out);
}

void Int8Dequantize(const std::byte* stored, MatrixShape shape, uint64_t first_row,
                    uint64_t end_row, uint16_t* out) {
  Dequantize(stored, shape, first_row, end_row, out);
}

}  // namespace longhaul::codec::quantized
