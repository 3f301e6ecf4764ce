#include "transport/collective/host/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace longhaul::collective::host {
namespace {

// A constant number of elements at a time: then -O2 makes vectors of the loops.
constexpr uint64_t kBlock = 256;

struct F32 {
  using Stored = float;
  static float Load(float value) { return value; }
  static float Store(float value) { return value; }
};
struct F16 {
  using Stored = uint16_t;
  static float Load(uint16_t value) { return F16ToF32(value); }
  static uint16_t Store(float value) { return F32ToF16(value); }
};
struct Bf16 {
  using Stored = uint16_t;
  static float Load(uint16_t value) { return Bf16ToF32(value); }
  static uint16_t Store(float value) { return F32ToBf16(value); }
};

struct Sum {
  static float Apply(float a, float b) { return a + b; }
};
struct Max {
  // The first NaN stays.
  static float Apply(float a, float b) { return a > b || a != a ? a : b; }
};

template <class Type, class Op>
void ReduceAll(std::span<const void* const> in, void* out, uint64_t count) {
  using Stored = typename Type::Stored;
  std::array<Stored, kBlock> raw{};  // zeros behind the end
  std::array<float, kBlock> sums;
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const size_t bytes = std::min(kBlock, count - begin) * sizeof(Stored);
    const size_t at = begin * sizeof(Stored);
    std::memcpy(raw.data(), static_cast<const std::byte*>(in[0]) + at, bytes);
    for (uint64_t k = 0; k < kBlock; ++k) sums[k] = Type::Load(raw[k]);
    for (const void* const next : in.subspan(1)) {
      std::memcpy(raw.data(), static_cast<const std::byte*>(next) + at, bytes);
      for (uint64_t k = 0; k < kBlock; ++k) sums[k] = Op::Apply(sums[k], Type::Load(raw[k]));
    }
    for (uint64_t k = 0; k < kBlock; ++k) raw[k] = Type::Store(sums[k]);
    std::memcpy(static_cast<std::byte*>(out) + at, raw.data(), bytes);
  }
}

template <class Type>
void ReduceAs(std::span<const void* const> in, void* out, uint64_t count, Reduction reduction) {
  reduction == Reduction::kSum ? ReduceAll<Type, Sum>(in, out, count)
                               : ReduceAll<Type, Max>(in, out, count);
}

}  // namespace

void Reduce(std::span<const void* const> in, void* out, uint64_t count, Dtype dtype,
            Reduction reduction) {
  LH_CHECK(!in.empty() && dtype != Dtype::kBytes, "a reduction of {} inputs of {}", in.size(),
           ToString(dtype));
  switch (dtype) {
    case Dtype::kF16:
      return ReduceAs<F16>(in, out, count, reduction);
    case Dtype::kBf16:
      return ReduceAs<Bf16>(in, out, count, reduction);
    default:
      return ReduceAs<F32>(in, out, count, reduction);
  }
}

}  // namespace longhaul::collective::host
