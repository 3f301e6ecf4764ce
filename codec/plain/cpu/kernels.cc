#include "codec/plain/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/plain/cpu/kernels.cc"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "codec/parallel.h"
#include "codec/simd/tensor-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::plain::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace ops = longhaul::codec::simd::HWY_NAMESPACE;

// Elements that are converted at a time: fits the first-level cache with room to spare.
constexpr size_t kChunk = 1024;

// `data` is aligned to its element.
template <class T>
uint64_t CountExponents(const void* data, size_t count, T exponent) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr size_t kStep = hn::MaxLanes(d);
  const T* const bits = static_cast<const T*>(data);
  // kChunk / kStep vectors: a lane's count fits.
  auto found = hn::Zero(di);
  size_t k = 0;
  for (; k + kStep <= count; k += kStep) {
    const auto all = hn::Set(d, exponent);
    const auto hit = hn::Eq(hn::And(hn::LoadU(d, bits + k), all), all);
    found = hn::Sub(found, hn::VecFromMask(di, hn::RebindMask(di, hit)));
  }
  alignas(64) hn::TFromD<decltype(di)> lanes[kStep];
  hn::Store(found, di, lanes);
  uint64_t sum = 0;
  for (const auto lane : lanes) sum += static_cast<uint64_t>(lane);
  for (; k < count; ++k) sum += (bits[k] & exponent) == exponent ? 1 : 0;
  return sum;
}

uint64_t CountNonFinite(Dtype dtype, const void* data, size_t count) {
  if (dtype == Dtype::kF32) return CountExponents<uint32_t>(data, count, kF32Infinity);
  return CountExponents<uint16_t>(data, count, dtype == Dtype::kBf16 ? 0x7f80 : 0x7c00);
}

bool Aligned(const void* pointer, size_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

// Copies where the formats agree, converts through fp32 elsewhere. No pointer needs alignment:
// what is not aligned goes through a buffer.
void Convert(Dtype from, const std::byte* in, size_t count, Dtype to, std::byte* out) {
  if (from == to) {
    std::memcpy(out, in, count * BytesPerElement(from));
    return;
  }
  alignas(64) float wide[kChunk];
  alignas(64) uint16_t raw[kChunk];
  const float* source = wide;
  if (from != Dtype::kF32) {
    const void* halves = in;
    if (!Aligned(in, sizeof(uint16_t))) {
      std::memcpy(raw, in, count * sizeof(uint16_t));
      halves = raw;
    }
    const bool direct = to == Dtype::kF32 && Aligned(out, sizeof(float));
    ops::Widen(from, static_cast<const uint16_t*>(halves), count,
               direct ? reinterpret_cast<float*>(out) : wide);
    if (direct) return;
  } else if (Aligned(in, sizeof(float))) {
    source = reinterpret_cast<const float*>(in);
  } else {
    std::memcpy(wide, in, count * sizeof(float));
  }
  if (to == Dtype::kF32) {
    std::memcpy(out, source, count * sizeof(float));
    return;
  }
  const bool direct = Aligned(out, sizeof(uint16_t));
  ops::Narrow(to, source, count, direct ? reinterpret_cast<uint16_t*>(out) : raw);
  if (!direct) std::memcpy(out, raw, count * sizeof(uint16_t));
}

// Elements [begin, end).
uint64_t EncodeOnTarget(const TensorView& in, uint64_t begin, uint64_t end, Dtype wire,
                        std::byte* out) {
  const auto* source = static_cast<const std::byte*>(in.data);
  uint64_t nonfinite = 0;
  for (uint64_t first = begin; first < end; first += kChunk) {
    const size_t count = std::min<uint64_t>(kChunk, end - first);
    const std::byte* chunk = source + first * BytesPerElement(in.dtype);
    nonfinite += CountNonFinite(in.dtype, chunk, count);
    Convert(in.dtype, chunk, count, wire, out + first * BytesPerElement(wire));
  }
  return nonfinite;
}

void DecodeOnTarget(const std::byte* in, Dtype wire, uint64_t begin, uint64_t end,
                    const MutableTensorView& out) {
  auto* target = static_cast<std::byte*>(out.data);
  for (uint64_t first = begin; first < end; first += kChunk) {
    const size_t count = std::min<uint64_t>(kChunk, end - first);
    Convert(wire, in + first * BytesPerElement(wire), count, out.dtype,
            target + first * BytesPerElement(out.dtype));
  }
}

}  // namespace longhaul::codec::plain::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec::plain::cpu {
namespace {

// Elements: a range ends at a whole cache line; what one thread does alone.
constexpr uint64_t kGrain = 1024, kSmall = 1 << 16;

}  // namespace

HWY_EXPORT(EncodeOnTarget);
HWY_EXPORT(DecodeOnTarget);

uint64_t Encode(const TensorView& in, Dtype wire, Parallel* parallel, std::byte* out) {
  std::atomic<uint64_t> nonfinite = 0;
  ForRanges(parallel, in.shape.elements(), kGrain, kSmall, [&](uint64_t first, uint64_t end) {
    nonfinite += HWY_DYNAMIC_DISPATCH(EncodeOnTarget)(in, first, end, wire, out);
  });
  return nonfinite;
}

void Decode(const std::byte* in, Dtype wire, Parallel* parallel, const MutableTensorView& out) {
  ForRanges(parallel, out.shape.elements(), kGrain, kSmall, [&](uint64_t first, uint64_t end) {
    HWY_DYNAMIC_DISPATCH(DecodeOnTarget)(in, wire, first, end, out);
  });
}

}  // namespace longhaul::codec::plain::cpu
#endif  // HWY_ONCE
