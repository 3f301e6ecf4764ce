#include "codec/plain/cpu/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/convert.h"

namespace longhaul::codec::plain::cpu {
namespace {

// Elements that are converted at a time: fits the first-level cache with room to spare.
constexpr size_t kChunk = 1024;

void Widen(Dtype dtype, const uint16_t* in, size_t count, float* out) {
  if (dtype == Dtype::kBf16) {
    for (size_t k = 0; k < count; ++k) out[k] = Bf16ToF32(in[k]);
  } else {
    for (size_t k = 0; k < count; ++k) out[k] = F16ToF32(in[k]);
  }
}

void Narrow(Dtype dtype, const float* in, size_t count, uint16_t* out) {
  if (dtype == Dtype::kBf16) {
    for (size_t k = 0; k < count; ++k) out[k] = F32ToBf16(in[k]);
  } else {
    for (size_t k = 0; k < count; ++k) out[k] = F32ToF16(in[k]);
  }
}

uint64_t CountNonFinite(Dtype dtype, const std::byte* data, size_t count) {
  uint32_t found = 0;
  if (dtype == Dtype::kF32) {
    uint32_t bits[kChunk];
    std::memcpy(bits, data, count * sizeof(uint32_t));
    for (size_t k = 0; k < count; ++k) found += (bits[k] & kF32Infinity) == kF32Infinity ? 1 : 0;
    return found;
  }
  const uint16_t exponent = dtype == Dtype::kBf16 ? 0x7f80 : 0x7c00;
  uint16_t bits[kChunk];
  std::memcpy(bits, data, count * sizeof(uint16_t));
  for (size_t k = 0; k < count; ++k) found += (bits[k] & exponent) == exponent ? 1 : 0;
  return found;
}

// Copies where the formats agree, converts through fp32 elsewhere. No pointer needs alignment.
void Convert(Dtype from, const std::byte* in, size_t count, Dtype to, std::byte* out) {
  if (from == to) {
    std::memcpy(out, in, count * BytesPerElement(from));
    return;
  }
  float wide[kChunk];
  uint16_t raw[kChunk];
  if (from == Dtype::kF32) {
    std::memcpy(wide, in, count * sizeof(float));
  } else {
    std::memcpy(raw, in, count * sizeof(uint16_t));
    Widen(from, raw, count, wide);
  }
  if (to == Dtype::kF32) {
    std::memcpy(out, wide, count * sizeof(float));
  } else {
    Narrow(to, wide, count, raw);
    std::memcpy(out, raw, count * sizeof(uint16_t));
  }
}

}  // namespace

uint64_t Encode(const TensorView& in, Dtype wire, std::byte* out) {
  const uint64_t elements = in.shape.elements();
  const auto* source = static_cast<const std::byte*>(in.data);
  uint64_t nonfinite = 0;
  for (uint64_t first = 0; first < elements; first += kChunk) {
    const size_t count = std::min<uint64_t>(kChunk, elements - first);
    const std::byte* chunk = source + first * BytesPerElement(in.dtype);
    nonfinite += CountNonFinite(in.dtype, chunk, count);
    Convert(in.dtype, chunk, count, wire, out + first * BytesPerElement(wire));
  }
  return nonfinite;
}

void Decode(const std::byte* in, Dtype wire, const MutableTensorView& out) {
  const uint64_t elements = out.shape.elements();
  auto* target = static_cast<std::byte*>(out.data);
  for (uint64_t first = 0; first < elements; first += kChunk) {
    const size_t count = std::min<uint64_t>(kChunk, elements - first);
    Convert(wire, in + first * BytesPerElement(wire), count, out.dtype,
            target + first * BytesPerElement(out.dtype));
  }
}

}  // namespace longhaul::codec::plain::cpu
