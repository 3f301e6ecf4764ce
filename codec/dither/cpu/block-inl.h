// Encodes a block to codes (arithmetic.h) and decodes it, with Highway. kernels.cc compiles this
// file once for each instruction set; all give the same bytes. Steps are those of format.h.
#if defined(LONGHAUL_CODEC_DITHER_CPU_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_DITHER_CPU_BLOCK_INL_H_
#undef LONGHAUL_CODEC_DITHER_CPU_BLOCK_INL_H_
#else
#define LONGHAUL_CODEC_DITHER_CPU_BLOCK_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "codec/dither/arithmetic.h"
#include "codec/gauss/cpu/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::dither::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace blocks = longhaul::codec::gauss::cpu::HWY_NAMESPACE;

using blocks::kFloats;
using blocks::kLanes;
using Integers = hn::RebindToSigned<blocks::Floats>;
using Halves = hn::Rebind<uint16_t, blocks::Floats>;
using Bytes = hn::Rebind<uint8_t, blocks::Floats>;
inline constexpr Integers kInts;

HWY_INLINE hn::Vec<Integers> LoadNumbers(const uint16_t* numbers) {
  return hn::PromoteTo(kInts, hn::LoadU(Halves(), numbers));
}
HWY_INLINE hn::Vec<Integers> MirrorOf(hn::Vec<Integers> number) {
  return hn::Sub(hn::ShiftRight<15>(number), hn::Set(kInts, 1));
}
HWY_INLINE hn::Vec<Integers> OuterBits(hn::Vec<Integers> number) {
  const auto differ = hn::Xor(hn::ShiftRight<15>(number), hn::ShiftRight<14>(number));
  return hn::ShiftLeft<7>(hn::AndNot(differ, hn::Set(kInts, 1)));
}
HWY_INLINE void StoreCodes(hn::Vec<Integers> codes, uint8_t* to) {
  hn::StoreU(hn::DemoteTo(Bytes(), codes), Bytes(), to);
}

// Steps 5 and 6. `factor`: 2^(-r/4) kPerUnit.
HWY_INLINE void Quantize(float factor, const float* y, const uint16_t* numbers, size_t size,
                         uint8_t* codes) {
  const auto scale = hn::Set(kFloats, factor);
  const auto origin = hn::Set(kInts, static_cast<int32_t>(kIntegersOfNumber));
  const auto integers = hn::Set(kInts, static_cast<int32_t>(kIntegers));
  const auto zero = hn::Set(kInts, static_cast<int32_t>(kSymbolOfZero));
  for (size_t k = 0; k < size; k += kLanes) {
    const auto number = LoadNumbers(numbers + k);
    const auto t = hn::Mul(hn::Load(kFloats, y + k), scale);
    const auto s = hn::Add(t, hn::BitCast(kFloats, hn::Add(origin, number)));
    const auto m = hn::ShiftRight<16>(hn::Sub(hn::BitCast(kInts, s), integers));
    const auto symbol = hn::Add(hn::Xor(m, MirrorOf(number)), zero);
    StoreCodes(hn::Or(symbol, OuterBits(number)), codes + k);
  }
}

// Computes R from codes, and the first stages of the transform, whose pairs lie in one vector.
HWY_INLINE void Restore(const uint8_t* codes, const uint16_t* numbers, size_t size, float* values) {
  const auto low = hn::Set(kInts, static_cast<int32_t>(kSymbols - 1));
  const auto zero = hn::Set(kInts, static_cast<int32_t>(kSymbolOfZero));
  const auto one = hn::Set(kInts, 1);
  for (size_t k = 0; k < size; k += kLanes) {
    const auto number = LoadNumbers(numbers + k);
    const auto code = hn::PromoteTo(kInts, hn::LoadU(Bytes(), codes + k));
    const auto symbol = hn::Sub(hn::And(code, low), zero);
    const auto m = hn::Xor(symbol, MirrorOf(number));
    const auto dither = hn::Add(hn::ShiftLeft<1>(number), one);
    const auto restored = hn::Sub(hn::ShiftLeft<17>(hn::Add(m, one)), dither);
    hn::Store(blocks::TransformInVector(hn::ConvertTo(kFloats, restored)), kFloats, values + k);
  }
}

// Encodes a block of finite values that are not all zero, and overwrites it. `largest`: the bits of
// the largest magnitude. Returns the block's q.
HWY_INLINE int16_t EncodeBlock(uint32_t largest, float per_unit, const float* signs,
                               const uint16_t* numbers, size_t size, float* values,
                               uint8_t* codes) {
  const int exponent = FloorLog2(largest);
  blocks::Normalize(ScaleUp(1 - exponent), signs, size, values);
  const int root = gauss::RootIndex(blocks::SumOfSquares(values, size));
  for (size_t k = 0; k < size; k += kLanes) {
    hn::Store(blocks::TransformInVector(hn::Load(kFloats, values + k)), kFloats, values + k);
  }
  blocks::TransformAcross(size, values);
  Quantize(gauss::InverseRoot(root) * per_unit, values, numbers, size, codes);
  const int log2_size = std::bit_width(size) - 1;
  return static_cast<int16_t>(4 * (exponent - 1) + root - 2 * log2_size);
}

HWY_INLINE void DecodeBlock(float unit, const gauss::BlockScale& scale, const float* signs,
                            const uint8_t* codes, const uint16_t* numbers, size_t size,
                            float* values) {
  Restore(codes, numbers, size, values);
  blocks::TransformAcross(size, values);
  const auto first = hn::Set(kFloats, unit * scale.first);
  const auto second = hn::Set(kFloats, scale.second);
  for (size_t k = 0; k < size; k += kLanes) {
    const auto x = hn::Mul(hn::Mul(hn::Load(kFloats, values + k), first), second);
    hn::Store(hn::Xor(x, hn::Load(kFloats, signs + k)), kFloats, values + k);
  }
}

}  // namespace longhaul::codec::dither::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_DITHER_CPU_BLOCK_INL_H_
