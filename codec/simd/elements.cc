#include "codec/simd/elements.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/simd/elements.cc"
#include <hwy/foreach_target.h>

#include "codec/simd/tensor-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::simd::HWY_NAMESPACE {

void WidenAll(Dtype dtype, const uint16_t* in, size_t count, float* out) {
  Widen(dtype, in, count, out);
}

void NarrowAll(Dtype dtype, const float* in, size_t count, uint16_t* out) {
  Narrow(dtype, in, count, out);
}

void Clamp(float limit, size_t count, float* values) {
  size_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    VF value = Load(values + k);
    value = hn::IfThenElse(hn::Gt(value, Float(limit)), Float(limit), value);
    Store(hn::IfThenElse(hn::Lt(value, Float(-limit)), Float(-limit), value), values + k);
  }
  for (; k < count; ++k) {
    const float value = values[k] > limit ? limit : values[k];
    values[k] = value < -limit ? -limit : value;
  }
}

}  // namespace longhaul::codec::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longhaul::codec {
namespace simd {
namespace {

HWY_EXPORT(WidenAll);
HWY_EXPORT(NarrowAll);
HWY_EXPORT(Clamp);

void Load(const TensorView& in, uint64_t offset, size_t count, float* out) {
  if (in.dtype == Dtype::kF32) {
    std::memcpy(out, static_cast<const float*>(in.data) + offset, count * sizeof(float));
    return;
  }
  const uint16_t* const from = static_cast<const uint16_t*>(in.data) + offset;
  HWY_DYNAMIC_DISPATCH(WidenAll)(in.dtype, from, count, out);
}

void Store(const MutableTensorView& out, uint64_t offset, size_t count, float* values) {
  const float limit = out.dtype == Dtype::kF32    ? std::numeric_limits<float>::max()
                      : out.dtype == Dtype::kBf16 ? std::bit_cast<float>(0x7f7f0000u)
                                                  : 65504.0f;
  HWY_DYNAMIC_DISPATCH(Clamp)(limit, count, values);
  if (out.dtype == Dtype::kF32) {
    std::memcpy(static_cast<float*>(out.data) + offset, values, count * sizeof(float));
    return;
  }
  uint16_t* const to = static_cast<uint16_t*>(out.data) + offset;
  HWY_DYNAMIC_DISPATCH(NarrowAll)(out.dtype, values, count, to);
}

}  // namespace
}  // namespace simd

void LoadElements(const TensorView& in, uint64_t offset, size_t count, size_t size, float* out) {
  simd::Load(in, offset, count, out);
  std::fill(out + count, out + size, 0.0f);
}

void StoreElements(const MutableTensorView& out, uint64_t offset, size_t count, float* values) {
  simd::Store(out, offset, count, values);
}

}  // namespace longhaul::codec
#endif  // HWY_ONCE
