#include "codec/sdp4bit/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sdp4bit/cpu/kernels.cc"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cstring>

#include "codec/sdp4bit/format.h"
#include "codec/simd/hadamard-inl.h"
#include "codec/simd/noise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::sdp4bit::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace ops = longhaul::codec::simd::HWY_NAMESPACE;
using ops::kLanes;

// What is on the stack at a time; a multiple of every vector and of the noise's stride.
constexpr size_t kChunk = 2048;

uint32_t LargestMagnitude(const float* values, size_t count) {
  auto largest = ops::Int(0);
  size_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    largest = hn::Max(largest, ops::MagnitudeBits(ops::Load(values + k)));
  }
  alignas(64) int32_t lanes[kLanes];
  ops::Store(largest, lanes);
  uint32_t result = 0;
  for (const int32_t lane : lanes) result = std::max(result, static_cast<uint32_t>(lane));
  for (; k < count; ++k) {
    result = std::max(result, std::bit_cast<uint32_t>(values[k]) & 0x7fffffff);
  }
  return result;
}

// Codes of up to kChunk values that are padded with zeros to whole vectors.
void Quantize(const float* values, size_t count, float step, const uint16_t* random,
              uint8_t* codes) {
  const auto divisor = ops::Float(step);
  const auto top = ops::Float(static_cast<float>(kTop));
  const auto bottom = ops::Float(static_cast<float>(-kTop));
  for (size_t k = 0; k < count; k += kLanes) {
    const auto quotient = hn::Div(ops::Load(values + k), divisor);
    const auto shift = random != nullptr ? ops::LoadMiddles(random + k) : ops::Float(0.5f);
    const auto rounded = hn::Min(hn::Max(hn::Floor(hn::Add(quotient, shift)), bottom), top);
    const auto code = hn::Add(hn::ConvertTo(ops::DI(), rounded), ops::Int(kCodeOffset));
    hn::StoreU(hn::DemoteTo(ops::DU8(), code), ops::DU8(), codes + k);
  }
}

void EncodePart(const float* values, uint64_t count, const Part& part, const RoundingNoise* noise,
                uint64_t number, std::byte* section) {
  alignas(64) float padded[kChunk];
  alignas(64) uint16_t random[kChunk];
  alignas(64) uint8_t codes[kChunk];
  const uint32_t group = part.group;
  std::byte* const steps = section + 4 * (part.first / group);
  std::byte* const packed = section + CodesOffset(part.of, group) + part.first / 2;
  for (uint64_t at = 0; at < count; at += group) {
    const uint64_t of_group = std::min<uint64_t>(group, count - at);
    const uint32_t largest = LargestMagnitude(values + at, of_group);
    const bool finite = largest < kF32Infinity;
    const float step = std::bit_cast<float>(largest) / static_cast<float>(kTop);
    const float stored = finite ? step : std::bit_cast<float>(uint32_t{0x7fc00000});
    std::memcpy(steps + 4 * (at / group), &stored, 4);
    for (uint64_t k = at; k < at + of_group; k += kChunk) {
      const size_t n = std::min<uint64_t>(kChunk, at + of_group - k);
      const size_t whole = (n + kLanes - 1) / kLanes * kLanes;
      const bool zero = !finite || !(step > 0);
      if (!zero) std::memcpy(padded, values + k, 4 * n);
      std::fill(padded + (zero ? 0 : n), padded + std::max(whole, n), 0.0f);
      if (noise != nullptr) ops::FillNoise(*noise, number + k, n, random);
      Quantize(padded, n, zero ? 1.0f : step, noise != nullptr ? random : nullptr, codes);
      if (n % 2 != 0) codes[n] = 0;
      for (size_t pair = 0; pair < (n + 1) / 2; ++pair) {
        packed[k / 2 + pair] = static_cast<std::byte>(codes[2 * pair] | codes[2 * pair + 1] << 4);
      }
    }
  }
  if (part.first + count < part.of) return;
  std::fill(packed + (count + 1) / 2, section + SectionBytes(part.of, group), std::byte{});
}

void DecodePart(const std::byte* section, uint64_t count, const Part& part, float* out) {
  const uint32_t group = part.group;
  const std::byte* const steps = section + 4 * (part.first / group);
  const std::byte* const packed = section + CodesOffset(part.of, group) + part.first / 2;
  for (uint64_t at = 0; at < count; at += group) {
    const uint64_t end = std::min(count, at + group);
    float step = 0;
    std::memcpy(&step, steps + 4 * (at / group), 4);
    for (uint64_t k = at; k + 1 < end; k += 2) {
      const int both = std::to_integer<int>(packed[k / 2]);
      out[k] = static_cast<float>((both & 15) - kCodeOffset) * step;
      out[k + 1] = static_cast<float>((both >> 4) - kCodeOffset) * step;
    }
    if ((end - at) % 2 != 0) {
      const int code = std::to_integer<int>(packed[(end - 1) / 2]) & 15;
      out[end - 1] = static_cast<float>(code - kCodeOffset) * step;
    }
  }
}

void TransformAll(float* values, uint64_t count, float factor) {
  for (uint64_t at = 0; at < count; at += kHadamard) {
    ops::Butterflies<kHadamard>(values + at);
    for (uint32_t k = 0; k < kHadamard; k += kLanes) {
      ops::Store(hn::Mul(ops::Load(values + at + k), ops::Float(factor)), values + at + k);
    }
  }
}

}  // namespace longhaul::codec::sdp4bit::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::sdp4bit::cpu {
HWY_EXPORT(EncodePart);
HWY_EXPORT(DecodePart);
HWY_EXPORT(TransformAll);

void Encode(std::span<const float> values, const Part& part, const RoundingNoise* noise,
            uint64_t number, std::byte* section) {
  HWY_DYNAMIC_DISPATCH(EncodePart)(values.data(), values.size(), part, noise, number, section);
}

void Decode(const std::byte* section, const Part& part, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(DecodePart)(section, out.size(), part, out.data());
}

void Transform(std::span<float> values) {
  HWY_DYNAMIC_DISPATCH(TransformAll)(values.data(), values.size(), 1.0f);
}

void TransformBack(std::span<float> values) {
  HWY_DYNAMIC_DISPATCH(TransformAll)(values.data(), values.size(), 1.0f / kHadamard);
}

}  // namespace longhaul::codec::sdp4bit::cpu
#endif  // HWY_ONCE
