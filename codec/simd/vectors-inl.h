// Vectors of floats and of their bits, and the functions of convert.h on vectors, for one target
// (instruction set) of Highway. foreach_target.h compiles the kernels that include this file once
// for each target. Results must be the same on all targets. So never use fused multiply-add
// (hn::MulAdd) or approximations, and add in a fixed order.
#if defined(LONGHAUL_CODEC_SIMD_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_SIMD_VECTORS_INL_H_
#undef LONGHAUL_CODEC_SIMD_VECTORS_INL_H_
#else
#define LONGHAUL_CODEC_SIMD_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "codec/convert.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// All vectors have kLanes lanes: 1, 4, 8 or 16. codec/CMakeLists.txt leaves out the targets whose
// number of lanes is not a constant.
using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DU16 = hn::Rebind<uint16_t, DF>;
using DU8 = hn::Rebind<uint8_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
inline constexpr size_t kLanes = hn::MaxLanes(DF());

HWY_INLINE VF Float(float value) {
  return hn::Set(DF(), value);
}
HWY_INLINE VI Int(int32_t value) {
  return hn::Set(DI(), value);
}
HWY_INLINE VU Bits(uint32_t value) {
  return hn::Set(DU(), value);
}
HWY_INLINE VI AsInt(VF value) {
  return hn::BitCast(DI(), value);
}
HWY_INLINE VU AsBits(VF value) {
  return hn::BitCast(DU(), value);
}
HWY_INLINE VF AsFloat(VI value) {
  return hn::BitCast(DF(), value);
}
HWY_INLINE VF AsFloat(VU value) {
  return hn::BitCast(DF(), value);
}
HWY_INLINE VF Load(const float* from) {
  return hn::LoadU(DF(), from);
}
HWY_INLINE VI Load(const int32_t* from) {
  return hn::LoadU(DI(), from);
}
HWY_INLINE void Store(VF value, float* to) {
  hn::StoreU(value, DF(), to);
}
HWY_INLINE void Store(VI value, int32_t* to) {
  hn::StoreU(value, DI(), to);
}
HWY_INLINE VF Select(hn::Mask<DI> mask, VF yes, VF no) {
  return hn::IfThenElse(hn::RebindMask(DF(), mask), yes, no);
}

// Returns the bits of |value|. Compared as integers, they have the order of the magnitudes; NaNs
// are the largest.
HWY_INLINE VI MagnitudeBits(VF value) {
  return hn::And(AsInt(value), Int(0x7fffffff));
}

// Loads kLanes 16-bit numbers into the low halves of 32-bit lanes.
HWY_INLINE VU LoadHalves(const uint16_t* from) {
  return hn::PromoteTo(DU(), hn::LoadU(DU16(), from));
}
// Stores the low 16 bits of each lane. The high 16 bits must be 0.
HWY_INLINE void StoreHalves(VU value, uint16_t* to) {
  hn::StoreU(hn::DemoteTo(DU16(), hn::BitCast(DI(), value)), DU16(), to);
}

// F16ToF32, F32ToF16, Bf16ToF32 and F32ToBf16 are as in base/half.h. 16-bit numbers are in the low
// halves of the lanes.
HWY_INLINE VF F16ToF32(VU half) {
  const VU magnitude = hn::ShiftLeft<13>(hn::And(half, Bits(0x7fff)));
  const VF scaled = hn::Mul(AsFloat(magnitude), Float(0x1p112f));
  const VU special = hn::IfThenElseZero(
      hn::RebindMask(DU(), hn::Gt(hn::BitCast(DI(), magnitude), Int(0x0f7fffff))),
      Bits(kF32Infinity));
  const VU sign = hn::ShiftLeft<16>(hn::And(half, Bits(0x8000)));
  return AsFloat(hn::Or(AsBits(scaled), hn::Or(special, sign)));
}

HWY_INLINE VU F32ToF16(VF value) {
  const VI magnitude = MagnitudeBits(value);
  const VI sign = hn::BitCast(DI(), hn::And(hn::ShiftRight<16>(AsBits(value)), Bits(0x8000)));
  const VI subnormal = hn::Sub(
      AsInt(hn::Add(AsFloat(hn::And(magnitude, Int(0x3fffffff))), Float(0.5f))), Int(0x3f000000));
  const VI odd = hn::And(hn::ShiftRight<13>(magnitude), Int(1));
  // An arithmetic shift. Lanes whose result is negative or wrapped do not use it.
  const VI normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, Int(0xfff - 0x38000000)), odd));
  VI half = hn::IfThenElse(hn::Lt(magnitude, Int(0x38800000)), subnormal, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, Int(0x477fefff)), Int(0x7c00), half);
  half = hn::IfThenElse(hn::Gt(magnitude, Int(kF32Infinity)), Int(kF16Nan), half);
  return hn::BitCast(DU(), hn::Or(half, sign));
}

HWY_INLINE VF Bf16ToF32(VU value) {
  return AsFloat(hn::ShiftLeft<16>(value));
}

HWY_INLINE VU F32ToBf16(VF value) {
  const VU bits = AsBits(value);
  const VU high = hn::ShiftRight<16>(bits);
  const VU rounded =
      hn::ShiftRight<16>(hn::Add(hn::Add(bits, Bits(0x7fff)), hn::And(high, Bits(1))));
  const auto nan = hn::Gt(MagnitudeBits(value), Int(kF32Infinity));
  return hn::IfThenElse(hn::RebindMask(DU(), nan), hn::Or(high, Bits(0x40)), rounded);
}

// As in convert.h: F32ToF16Up returns the smallest fp16 number that is not below `value`,
// F32ToF16Down the largest one that is not above it.
HWY_INLINE VU F32ToF16Up(VF value) {
  const VU half = F32ToF16(value);
  const auto below = hn::RebindMask(DU(), hn::Lt(F16ToF32(half), value));
  return hn::IfThenElse(below, hn::Add(half, Bits(1)), half);
}
HWY_INLINE VU F32ToF16Down(VF value) {
  const VU half = F32ToF16(value);
  const auto above = hn::RebindMask(DU(), hn::Gt(F16ToF32(half), value));
  const VU magnitude = hn::And(half, Bits(0x7fff));
  const auto negative = hn::Ne(hn::And(half, Bits(0x8000)), Bits(0));
  VU lower = hn::IfThenElse(negative, hn::Add(half, Bits(1)), hn::Sub(half, Bits(1)));
  lower = hn::IfThenElse(hn::Eq(magnitude, Bits(0)), Bits(0x8001), lower);
  return hn::IfThenElse(above, lower, half);
}

// Returns 2^exponent, -126 <= exponent <= 127.
HWY_INLINE VF Pow2(VI exponent) {
  return AsFloat(hn::ShiftLeft<23>(hn::Add(exponent, Int(127))));
}

// Returns floor(log2) of finite magnitudes > 0, given as bits. Other lanes get any number.
HWY_INLINE VI FloorLog2(VI magnitude) {
  const VI exponent = hn::Sub(hn::ShiftRight<23>(magnitude), Int(127));
  // The integer of a subnormal is exact in fp32.
  const VI as_integer = AsInt(hn::ConvertTo(DF(), magnitude));
  const VI subnormal = hn::Sub(hn::ShiftRight<23>(as_integer), Int(127 + 149));
  return hn::IfThenElse(hn::Gt(Int(0x00800000), magnitude), subnormal, exponent);
}

}  // namespace longhaul::codec::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_SIMD_VECTORS_INL_H_
