// The steps of format.h for one block, and decoding, for one target of Highway. kernels.cc compiles
// this file once for each instruction set; all sets give the same bytes. EncodeBlock and
// DecodeBlock are the functions of BlockKernels.
#if defined(LONGHAUL_CODEC_TACO_CPU_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_TACO_CPU_BLOCK_INL_H_
#undef LONGHAUL_CODEC_TACO_CPU_BLOCK_INL_H_
#else
#define LONGHAUL_CODEC_TACO_CPU_BLOCK_INL_H_
#endif

#include <bit>
#include <cstring>

#include "codec/simd/hadamard-inl.h"
#include "codec/simd/tile-inl.h"
#include "codec/taco/arithmetic.h"
#include "codec/tile.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::taco::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace simd::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace)

// As ToCode of arithmetic.h. The values' magnitudes must not exceed Q by more than a rounding
// error.
template <Format kFormat>
HWY_INLINE VI ToCodes(VF value) {
  if constexpr (kFormat == Format::kInt8) {
    const VF bounded = hn::Min(hn::Max(value, Float(-127.0f)), Float(127.0f));
    return hn::And(AsInt(hn::Add(bounded, Float(kRoundMagic))), Int(0xff));
  } else {
    using F = Float8<kFormat>;
    constexpr auto kLeast = static_cast<int32_t>(std::bit_cast<uint32_t>(F::kLeast));
    constexpr int32_t kBias = kLeast - (1 << 23);
    const VI magnitude = MagnitudeBits(value);
    const VI subnormal = hn::Sub(AsInt(hn::Add(AsFloat(magnitude), Float(F::kSubnormal))),
                                 AsInt(Float(F::kSubnormal)));
    const VI odd = hn::And(hn::ShiftRight<F::kShift>(magnitude), Int(1));
    const VI normal = hn::ShiftRight<F::kShift>(
        hn::Add(hn::Add(magnitude, Int((1 << (F::kShift - 1)) - 1 - kBias)), odd));
    const VI code = hn::IfThenElse(hn::Lt(magnitude, Int(kLeast)), subnormal, normal);
    const VI sign = hn::And(hn::BitCast(DI(), hn::ShiftRight<24>(AsBits(value))), Int(0x80));
    return hn::Or(hn::Min(code, Int(F::kLargest)), sign);
  }
}

// Returns the largest magnitude as bits of fp32: kF32Infinity or more if and only if an element is
// not finite.
template <size_t kSize>
HWY_INLINE uint32_t LargestMagnitude(const float* values) {
  VI largest = Int(0);
  for (size_t k = 0; k < kSize; k += kLanes) {
    largest = hn::Max(largest, MagnitudeBits(Load(values + k)));
  }
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(DI(), largest)));
}

template <Format kFormat, size_t kSize>
float EncodeBlock(const float* values, float* y, std::byte* codes) {
  std::memcpy(y, values, kSize * sizeof(float));
  Butterflies<kSize>(y);
  uint32_t largest = LargestMagnitude<kSize>(y);
  const bool lowered = largest >= kF32Infinity;
  if (lowered) {
    for (size_t k = 0; k < kSize; k += kLanes) {
      Store(hn::Mul(Load(values + k), Float(kLowered)), y + k);
    }
    Butterflies<kSize>(y);
    largest = LargestMagnitude<kSize>(y);
    if (largest >= kF32Infinity) {
      std::memset(codes, 0, kSize);
      return std::bit_cast<float>(kNanBits);
    }
  }
  constexpr float kUnit = UnitOf(kFormat, kSize);
  const Scaling scaling(std::bit_cast<float>(largest), lowered, LargestNumber(kFormat), kUnit);
  const VF raise = Float(scaling.tiny ? kRaised : 1.0f);
  const VF factor = Float(scaling.to_codes);
  const auto code_of = [&](size_t k) {
    return ToCodes<kFormat>(hn::Mul(hn::Mul(Load(y + k), raise), factor));
  };
  StoreAllCodes<kSize>(code_of, reinterpret_cast<uint8_t*>(codes));
  return scaling.c;
}

template <Format kFormat, size_t kSize>
void DecodeBlock(const std::byte* codes, float c, float* values) {
  const auto* from = reinterpret_cast<const uint8_t*>(codes);
  VI largest = Int(0);
  for (size_t k = 0; k < kSize; k += kLanes) {
    const VI code = hn::PromoteTo(DI(), hn::LoadU(DU8(), from + k));
    if constexpr (kFormat == Format::kInt8) {
      const VI number = hn::Sub(hn::Xor(code, Int(0x80)), Int(0x80));
      Store(hn::ConvertTo(DF(), number), values + k);
    } else {
      using F = Float8<kFormat>;
      const VI magnitude = hn::And(code, Int(0x7f));
      largest = hn::Max(largest, magnitude);
      const VI sign = hn::ShiftLeft<24>(hn::And(code, Int(0x80)));
      const VI bits = hn::Or(hn::ShiftLeft<F::kShift>(magnitude), sign);
      Store(hn::Mul(AsFloat(bits), Float(F::kUp)), values + k);
    }
  }
  bool numbers = (std::bit_cast<uint32_t>(c) & 0x7fffffff) < kF32Infinity;
  if constexpr (kFormat != Format::kInt8) {
    numbers = numbers && hn::GetLane(hn::MaxOfLanes(DI(), largest)) <=
                             static_cast<int32_t>(Float8<kFormat>::kLargest);
  }
  if (!numbers) {
    FillNan<kSize>(values);
    return;
  }
  Butterflies<kSize>(values);
  const ScaleOf scale(c);
  const VF first = Float(scale.first);
  const VF second = Float(scale.second);
  const VF limit = Float(std::numeric_limits<float>::max());
  for (size_t k = 0; k < kSize; k += kLanes) {
    const VF x = hn::Mul(hn::Mul(Load(values + k), first), second);
    Store(hn::Max(hn::Min(x, limit), hn::Neg(limit)), values + k);
  }
}

template <Format kFormat, size_t kSize>
BlockKernels Of() {
  return {&EncodeBlock<kFormat, kSize>, &DecodeBlock<kFormat, kSize>};
}

template <Format kFormat>
BlockKernels OfSize(uint32_t block) {
  switch (block) {
    case 32:
      return Of<kFormat, 32>();
    case 64:
      return Of<kFormat, 64>();
    case 128:
      return Of<kFormat, 128>();
    case 256:
      return Of<kFormat, 256>();
    default:
      return Of<kFormat, 512>();
  }
}

}  // namespace longhaul::codec::taco::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_TACO_CPU_BLOCK_INL_H_
