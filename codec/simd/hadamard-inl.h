// The Sylvester-Hadamard transform, with its sums in a fixed order, for one target of Highway.
#if defined(LONGHAUL_CODEC_SIMD_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_SIMD_HADAMARD_INL_H_
#undef LONGHAUL_CODEC_SIMD_HADAMARD_INL_H_
#else
#define LONGHAUL_CODEC_SIMD_HADAMARD_INL_H_
#endif

#include "codec/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::simd::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Lane k of the result is lane k ^ kDistance of `v`.
template <size_t kDistance>
HWY_INLINE VF Partner(VF v) {
  if constexpr (kDistance == 1) return hn::Shuffle2301(v);
  if constexpr (kDistance == 2) return hn::Shuffle1032(v);
  if constexpr (kDistance == 4) return hn::SwapAdjacentBlocks(v);
  if constexpr (kDistance == 8) return hn::ConcatLowerUpper(DF(), v, v);
}

// Lane k of the result is partner + own if k & kDistance is 0, else partner - own. own is lane k of
// `v`, partner is lane k ^ kDistance. The difference is computed as partner + (-own), with the same
// bits.
template <size_t kDistance>
HWY_INLINE VF ButterflyInside(VF v) {
  const VI lane = hn::Iota(DI(), 0);
  const VI set = hn::And(lane, Int(static_cast<int32_t>(kDistance)));
  constexpr int kShift = kDistance == 1 ? 31 : kDistance == 2 ? 30 : kDistance == 4 ? 29 : 28;
  return hn::Add(Partner<kDistance>(v), hn::Xor(v, AsFloat(hn::ShiftLeft<kShift>(set))));
}
#endif

// Transforms `values` in place: for each h = 1, 2, 4, ..., kSize / 2 in this order, every pair
// (v[i], v[i + h]) with i & h = 0 becomes (sum, difference). kSize: a power of two, 32 or more.
template <size_t kSize>
HWY_INLINE void Butterflies(float* values) {
  constexpr size_t kVecs = kSize / kLanes;
#if HWY_TARGET != HWY_SCALAR
  for (size_t k = 0; k < kVecs; ++k) {
    VF v = Load(values + k * kLanes);
    v = ButterflyInside<1>(v);
    v = ButterflyInside<2>(v);
    if constexpr (kLanes > 4) v = ButterflyInside<4>(v);
    if constexpr (kLanes > 8) v = ButterflyInside<8>(v);
    Store(v, values + k * kLanes);
  }
#endif
  // Distances of whole vectors, two distances at a time, so that each number is loaded and stored
  // half as often.
  size_t distance = 1;
  for (; 4 * distance <= kVecs; distance *= 4) {
    for (size_t block = 0; block < kVecs; block += 4 * distance) {
      for (size_t k = block; k < block + distance; ++k) {
        float* const at[4] = {values + k * kLanes, values + (k + distance) * kLanes,
                              values + (k + 2 * distance) * kLanes,
                              values + (k + 3 * distance) * kLanes};
        const VF v0 = Load(at[0]);
        const VF v1 = Load(at[1]);
        const VF v2 = Load(at[2]);
        const VF v3 = Load(at[3]);
        const VF s0 = hn::Add(v0, v1);
        const VF d0 = hn::Sub(v0, v1);
        const VF s1 = hn::Add(v2, v3);
        const VF d1 = hn::Sub(v2, v3);
        Store(hn::Add(s0, s1), at[0]);
        Store(hn::Add(d0, d1), at[1]);
        Store(hn::Sub(s0, s1), at[2]);
        Store(hn::Sub(d0, d1), at[3]);
      }
    }
  }
  if (distance < kVecs) {
    for (size_t k = 0; k < distance; ++k) {
      const VF v0 = Load(values + k * kLanes);
      const VF v1 = Load(values + (k + distance) * kLanes);
      Store(hn::Add(v0, v1), values + k * kLanes);
      Store(hn::Sub(v0, v1), values + (k + distance) * kLanes);
    }
  }
}

}  // namespace longhaul::codec::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_SIMD_HADAMARD_INL_H_
