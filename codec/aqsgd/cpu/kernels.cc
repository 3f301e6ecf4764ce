#include "codec/aqsgd/cpu/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "codec/planes.h"
#include "codec/simd/elements.h"
#include "codec/tile.h"

namespace longhaul::codec::aqsgd::cpu {
namespace {

constexpr float kLargestHalf = 65504.0f;

// Calls function(element in the sample, channel, count) for every tile of a sample, in memory
// order.
template <class Function>
void ForEachTile(const Shape& shape, Function&& function) {
  for (uint64_t token = 0; token < shape.tokens; ++token) {
    for (uint64_t channel = 0; channel < shape.channels; channel += kTile) {
      const int count = static_cast<int>(std::min<uint64_t>(kTile, shape.channels - channel));
      function(token * shape.channels + channel, channel, count);
    }
  }
}

uint64_t SampleElements(const Shape& shape) {
  return uint64_t{shape.tokens} * shape.channels;
}

// `count` halves as floats, zeros after them.
void LoadHalves(const std::byte* halves, int count, float* out) {
  uint16_t raw[kTile] = {};
  std::memcpy(raw, halves, static_cast<size_t>(count) * sizeof(uint16_t));
  for (int k = 0; k < kTile; ++k) out[k] = F16ToF32(raw[k]);
}

// fp16(m + change), clamped; back in `message` as a float.
void Update(float* message, const float* change, int count, std::byte* updated) {
  uint16_t raw[kTile];
  for (int k = 0; k < kTile; ++k) {
    float value = message[k] + change[k];
    value = value > kLargestHalf ? kLargestHalf : value;
    value = value < -kLargestHalf ? -kLargestHalf : value;
    raw[k] = F32ToF16(value);
    message[k] = F16ToF32(raw[k]);
  }
  if (updated != nullptr) {
    std::memcpy(updated, raw, static_cast<size_t>(count) * sizeof(uint16_t));
  }
}

}  // namespace

Magnitudes Measure(const Sample& sample) {
  const uint64_t first = sample.index * SampleElements(sample.tensor.shape);
  Magnitudes result;
  alignas(64) float values[kTile];
  ForEachTile(sample.tensor.shape, [&](uint64_t element, uint64_t /*channel*/, int count) {
    LoadElements(sample.tensor, first + element, static_cast<size_t>(count), kTile, values);
    int32_t largest = 0;
    uint32_t nonfinite = 0;
    for (const float value : values) {
      const int32_t bits = std::bit_cast<int32_t>(value) & 0x7fffffff;
      const bool finite = bits < static_cast<int32_t>(kF32Infinity);
      nonfinite += finite ? 0 : 1;
      largest = finite && bits > largest ? bits : largest;
    }
    result.nonfinite += nonfinite;
    result.largest = std::max(result.largest, static_cast<uint32_t>(largest));
  });
  return result;
}

void EncodeWhole(const Sample& sample, int exponent, std::byte* body) {
  const uint64_t elements = SampleElements(sample.tensor.shape);
  const ScaleUp scale_up(exponent);
  alignas(64) float values[kTile];
  uint16_t raw[kTile];
  for (uint64_t at = 0; at < elements; at += kTile) {
    const int count = static_cast<int>(std::min<uint64_t>(kTile, elements - at));
    LoadElements(sample.tensor, sample.index * elements + at, static_cast<size_t>(count), kTile,
                 values);
    for (int k = 0; k < kTile; ++k) {
      const uint16_t half = F32ToF16(scale_up(values[k]));
      raw[k] = (half & 0x7c00) == 0x7c00 ? kF16Nan : half;
    }
    std::memcpy(body + 2 * at, raw, static_cast<size_t>(count) * sizeof(uint16_t));
  }
  std::memset(body + 2 * elements, 0, AlignSection(2 * elements) - 2 * elements);
}

bool AllFinite(const std::byte* halves, uint64_t count) {
  uint32_t found = 0;
  for (uint64_t k = 0; k < count; ++k) {
    found |= (LoadU16(halves + 2 * k) & 0x7c00) == 0x7c00 ? 1 : 0;
  }
  return found == 0;
}

uint32_t MeasureDifference(const Sample& sample, int exponent, const std::byte* message,
                           float* largest) {
  const Shape& shape = sample.tensor.shape;
  const uint64_t first = sample.index * SampleElements(shape);
  const ScaleUp scale_up(exponent);
  std::fill_n(largest, (shape.channels + kTile - 1) / kTile * kTile, 0.0f);
  alignas(64) float values[kTile];
  alignas(64) float old[kTile];
  ForEachTile(shape, [&](uint64_t element, uint64_t channel, int count) {
    LoadElements(sample.tensor, first + element, static_cast<size_t>(count), kTile, values);
    LoadHalves(message + 2 * element, count, old);
    float* const into = largest + channel;
    for (int k = 0; k < kTile; ++k) {
      const float magnitude = std::fabs(scale_up(values[k]) - old[k]);
      into[k] = magnitude > into[k] ? magnitude : into[k];
    }
  });
  uint32_t result = 0;
  for (uint64_t channel = 0; channel < shape.channels; ++channel) {
    result = std::max(result, std::bit_cast<uint32_t>(largest[channel]));
  }
  return result;
}

void EncodeDifference(const Sample& sample, int exponent, int difference_exponent,
                      const Params& params, const float* scales, const std::byte* message,
                      std::byte* updated, std::byte* body) {
  const Shape& shape = sample.tensor.shape;
  const uint64_t first = sample.index * SampleElements(shape);
  const ScaleUp scale_up(exponent);
  const float up = Pow2(difference_exponent);
  const float down = Pow2(-difference_exponent);
  const int bits = static_cast<int>(params.bits);
  const int32_t offset = 1 << (bits - 1);
  const auto limit = static_cast<float>(offset - 1);
  alignas(64) float values[kTile];
  alignas(64) float old[kTile];
  alignas(64) uint8_t codes[kTile];
  std::byte* tile = body;
  ForEachTile(shape, [&](uint64_t element, uint64_t channel, int count) {
    LoadElements(sample.tensor, first + element, static_cast<size_t>(count), kTile, values);
    LoadHalves(message + 2 * element, count, old);
    const float* const scale = scales + channel;
    for (int k = 0; k < kTile; ++k) {
      const float difference = (scale_up(values[k]) - old[k]) * up;
      // Without a scale the quotient is by 1 and then dropped, so that no NaN appears.
      const float divisor = scale[k] > 0 ? scale[k] : 1.0f;
      float value = difference / divisor;
      value = value < -limit ? -limit : value;
      value = value > limit ? limit : value;
      value = scale[k] > 0 ? value : 0.0f;
      const auto code =
          static_cast<int32_t>(std::bit_cast<uint32_t>(value + kRoundMagic) - kRoundMagicBits);
      codes[k] = static_cast<uint8_t>(code + offset);
      values[k] = static_cast<float>(code) * scale[k] * down;
    }
    for (int bit = 0; bit < bits; ++bit) {
      PackPlane<kTile>(codes, bit, tile + bit * (kTile / 8));
    }
    tile += bits * (kTile / 8);
    Update(old, values, count, updated == nullptr ? nullptr : updated + 2 * element);
  });
  const auto written = static_cast<uint64_t>(tile - body);
  std::memset(tile, 0, AlignSection(written) - written);
}

void DecodeDifference(const std::byte* body, int exponent, int difference_exponent,
                      const Params& params, const float* scales, const std::byte* message,
                      std::byte* updated, uint64_t index, const MutableTensorView& out) {
  const uint64_t first = index * SampleElements(out.shape);
  const ScaleBack scale_back(exponent);
  const float down = Pow2(-difference_exponent);
  const int bits = static_cast<int>(params.bits);
  const int32_t offset = 1 << (bits - 1);
  alignas(64) float values[kTile];
  alignas(64) float old[kTile];
  const std::byte* tile = body;
  ForEachTile(out.shape, [&](uint64_t element, uint64_t channel, int count) {
    alignas(64) uint8_t codes[kTile] = {};
    for (int bit = 0; bit < bits; ++bit) {
      UnpackPlane<kTile>(tile + bit * (kTile / 8), bit, codes);
    }
    tile += bits * (kTile / 8);
    LoadHalves(message + 2 * element, count, old);
    const float* const scale = scales + channel;
    for (int k = 0; k < kTile; ++k) {
      values[k] = static_cast<float>(int32_t{codes[k]} - offset) * scale[k] * down;
    }
    Update(old, values, count, updated == nullptr ? nullptr : updated + 2 * element);
    for (int k = 0; k < kTile; ++k) values[k] = scale_back(old[k]);
    StoreElements(out, first + element, static_cast<size_t>(count), values);
  });
}

void DecodeWhole(const std::byte* body, int exponent, uint64_t index,
                 const MutableTensorView& out) {
  const uint64_t elements = SampleElements(out.shape);
  const ScaleBack scale_back(exponent);
  alignas(64) float values[kTile];
  for (uint64_t at = 0; at < elements; at += kTile) {
    const int count = static_cast<int>(std::min<uint64_t>(kTile, elements - at));
    LoadHalves(body + 2 * at, count, values);
    for (float& value : values) {
      const bool finite = std::fabs(value) <= kLargestHalf;
      value = finite ? scale_back(value) : std::numeric_limits<float>::quiet_NaN();
    }
    StoreElements(out, index * elements + at, static_cast<size_t>(count), values);
  }
}

}  // namespace longhaul::codec::aqsgd::cpu
