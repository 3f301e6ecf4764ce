#include "codec/quantized/nf4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "codec/convert.h"
#include "codec/quantized/format.h"
#include "codec/quantized/maps.h"

namespace longhaul::codec::quantized {
namespace {

// The numbers half-way between neighbours of an ascending map. The code of a number is how many of
// them are below it: torch.bucketize(right=False).
template <size_t kCount>
constexpr std::array<float, kCount - 1> Middles(const float (&map)[kCount]) {
  std::array<float, kCount - 1> middles{};
  for (size_t i = 0; i + 1 < kCount; ++i) middles[i] = (map[i] + map[i + 1]) / 2;
  return middles;
}
constexpr auto kNf4Middles = Middles(kNf4Map.values);
constexpr auto kDynamicMiddles = Middles(kDynamicMap.values);

// bitsandbytes divides by no less.
constexpr float kLeastAbsmax = 1e-38f;

float AbsmaxOf(const float* values, uint64_t count) {
  uint32_t largest = 0;  // the bits of magnitudes ascend as the magnitudes do
  for (uint64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  }
  return std::bit_cast<float>(largest);
}

// A block, or a group of absmax, whose numbers are divided by their absmax. bitsandbytes multiplies
// a whole block by 1 / absmax; but divides the last block if it is shorter, and stores no absmax
// below kLeastAbsmax for it.
class Scaled {
 public:
  Scaled(const float* values, uint64_t count, uint64_t whole)
      : values_(values), divides_(count < whole), absmax_(AbsmaxOf(values, count)) {
    const float divisor = std::max(absmax_, kLeastAbsmax);
    if (divides_) absmax_ = divisor;
    factor_ = divides_ ? divisor : 1.0f / divisor;
  }
  float absmax() const { return absmax_; }
  bool is_finite() const { return std::isfinite(absmax_); }
  float operator[](uint64_t i) const {
    const float scaled = divides_ ? values_[i] / factor_ : values_[i] * factor_;
    return std::clamp(scaled, -1.0f, 1.0f);
  }

 private:
  const float* const values_;
  const bool divides_;
  float absmax_, factor_ = 0;
};

uint8_t LevelOf(float scaled) {
  uint32_t below = 0;
  for (const float middle : kNf4Middles) below += scaled > middle ? 1u : 0u;
  return static_cast<uint8_t>(below);
}

uint8_t CodeOf(float scaled) {
  return static_cast<uint8_t>(std::ranges::lower_bound(kDynamicMiddles, scaled) -
                              kDynamicMiddles.begin());
}

float FloatAt(const std::byte* stored, uint64_t index) {
  float value = 0;
  std::memcpy(&value, stored + 4 * index, sizeof(value));
  return value;
}

template <class T>
T As(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return F32ToBf16(value);
  }
}

template <class T>
void Dequantize(const std::byte* stored, uint64_t elements, uint64_t first_block,
                uint64_t end_block, T* out) {
  const Nf4Layout layout(elements);
  const float mean = FloatAt(stored, 0);
  const auto* const codes = reinterpret_cast<const uint8_t*>(stored + layout.codes);
  for (uint64_t block = first_block; block < end_block; ++block) {
    const float scaled =
        kDynamicMap.values[codes[block]] * FloatAt(stored, 1 + block / kAbsmaxGroup);
    const float absmax = scaled + mean;
    // All numbers that a block of this absmax can have.
    std::array<T, 16> numbers{};
    for (size_t level = 0; level < numbers.size(); ++level) {
      numbers[level] = As<T>(kNf4Map.values[level] * absmax);
    }
    const uint64_t first = block * kNf4Block, count = std::min(kNf4Block, elements - first);
    const auto* const levels = reinterpret_cast<const uint8_t*>(stored + layout.levels) + first / 2;
    T* const to = out + first;
    for (uint64_t i = 0; i < count / 2; ++i) {
      to[2 * i] = numbers[levels[i] >> 4];
      to[2 * i + 1] = numbers[levels[i] & 15];
    }
    if (count % 2 != 0) to[count - 1] = numbers[levels[count / 2] >> 4];
  }
}

}  // namespace

bool Nf4QuantizeBlocks(std::span<const float> values, uint64_t first_block, uint64_t end_block,
                       std::span<float> absmax, std::byte* stored) {
  auto* const levels = reinterpret_cast<uint8_t*>(stored + Nf4Layout(values.size()).levels);
  std::array<uint8_t, kNf4Block> of_block{};
  for (uint64_t block = first_block; block < end_block; ++block) {
    const uint64_t first = block * kNf4Block;
    const uint64_t count = std::min<uint64_t>(kNf4Block, values.size() - first);
    const Scaled scaled(values.data() + first, count, kNf4Block);
    if (!scaled.is_finite()) return false;
    absmax[block] = scaled.absmax();
    for (uint64_t i = 0; i < count; ++i) of_block[i] = LevelOf(scaled[i]);
    if (count % 2 != 0) of_block[count] = LevelOf(0);
    for (uint64_t i = 0; i < (count + 1) / 2; ++i) {
      levels[first / 2 + i] = static_cast<uint8_t>(of_block[2 * i] << 4 | of_block[2 * i + 1]);
    }
  }
  return true;
}

float Nf4MeanOfAbsmax(std::span<const float> absmax) {
  if (absmax.empty()) return 0;
  const double sum = std::accumulate(absmax.begin(), absmax.end(), 0.0);
  return static_cast<float>(sum / static_cast<double>(absmax.size()));
}

void Nf4StoreAbsmax(std::span<const float> absmax, float mean, uint64_t elements,
                    std::byte* stored) {
  const Nf4Layout layout(elements);
  std::memcpy(stored, &mean, sizeof(mean));
  auto* const codes = reinterpret_cast<uint8_t*>(stored + layout.codes);
  std::array<float, kAbsmaxGroup> apart{};
  for (uint64_t group = 0; group < layout.groups; ++group) {
    const uint64_t first = group * kAbsmaxGroup;
    const uint64_t count = std::min(kAbsmaxGroup, layout.blocks - first);
    for (uint64_t i = 0; i < count; ++i) apart[i] = absmax[first + i] - mean;
    const Scaled scaled(apart.data(), count, kAbsmaxGroup);
    const float of_group = scaled.absmax();
    std::memcpy(stored + 4 * (1 + group), &of_group, sizeof(of_group));
    for (uint64_t i = 0; i < count; ++i) codes[first + i] = CodeOf(scaled[i]);
  }
}

bool Nf4Quantize(std::span<const float> values, std::byte* stored) {
  const Nf4Layout layout(values.size());
  std::vector<float> absmax(layout.blocks);
  if (!Nf4QuantizeBlocks(values, 0, layout.blocks, absmax, stored)) return false;
  Nf4StoreAbsmax(absmax, Nf4MeanOfAbsmax(absmax), values.size(), stored);
  return true;
}

void Nf4Dequantize(const std::byte* stored, uint64_t elements, uint64_t first_block,
                   uint64_t end_block, float* out) {
  Dequantize(stored, elements, first_block, end_block, out);
}

void Nf4Dequantize(const std::byte* stored, uint64_t elements, uint64_t first_block,
                   uint64_t end_block, uint16_t* out) {
  Dequantize(stored, elements, first_block, end_block, out);
}

}  // namespace longhaul::codec::quantized
