// Steps 3 to 5 of format.h for a batch of tiles, and decoding, for one target of Highway.
#if defined(LONGHAUL_CODEC_TAH_CPU_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_TAH_CPU_QUANTIZE_INL_H_
#undef LONGHAUL_CODEC_TAH_CPU_QUANTIZE_INL_H_
#else
#define LONGHAUL_CODEC_TAH_CPU_QUANTIZE_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "codec/simd/hadamard-inl.h"
#include "codec/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::tah::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace ops = longhaul::codec::simd::HWY_NAMESPACE;
using ops::kBatch;
using ops::kLanes;

constexpr uint16_t kTransformed = 0x8000;  // bit of a stored scale: the tile was transformed

// 1 / sqrt(kTile).
template <size_t kTile>
constexpr float kInverseRoot = kTile == 32   ? 0.176776695f
                               : kTile == 64 ? 0.125f
                                             : 0.0883883476f;

// Numbers about the tiles of a batch. scale, zero and pivot are stored; quantizing needs the rest.
struct BatchMeta {
  ops::PerTile<uint16_t> scale;  // fp16, with kTransformed
  ops::PerTile<uint16_t> zero;   // fp16
  ops::PerTile<uint32_t> pivot;
  ops::PerTile<float> top;              // 2^b - 1; the caller sets it
  ops::PerTile<float> divisor, origin;  // the scale (infinity for 0) and the zero, as stored
  ops::PerTile<int32_t> finite;         // -1: yes, 0: no
  ops::PerTile<int32_t> transformed;    // -1: yes, 0: no
};

// The ranges of a batch's tiles, folded to four numbers for each tile.
struct BatchRange {
  ops::FourPerTile largest, second;  // the largest magnitude, and the second largest, as bits
  ops::FourPerTile low, high;        // the smallest and the largest value
};

// Merges two pairs into the first pair. A pair has the largest and the second largest of some
// numbers.
template <class V>
HWY_INLINE void MergeLargest(V& largest, V& second, V other_largest, V other_second) {
  second = hn::Max(hn::Min(largest, other_largest), hn::Max(second, other_second));
  largest = hn::Max(largest, other_largest);
}

// Folds `largest` and `second`, kLeft vectors each, to four numbers each, and stores the numbers.
HWY_INLINE void StoreLargest(const ops::VI* largest, const ops::VI* second, float* largest_out,
                             float* second_out) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t k = 0; k < ops::kLeft; ++k) {
    ops::Store(ops::AsFloat(largest[k]), largest_out + k);
    ops::Store(ops::AsFloat(second[k]), second_out + k);
  }
#else
  const auto store = [&](auto d, auto four_largest, auto four_second) HWY_ATTR {
    const hn::Rebind<float, decltype(d)> df;
    hn::StoreU(hn::BitCast(df, four_largest), df, largest_out);
    hn::StoreU(hn::BitCast(df, four_second), df, second_out);
  };
  if constexpr (kLanes == 4) {
    store(ops::DI(), largest[0], second[0]);
  } else {
    const hn::Half<ops::DI> half;
    auto a = hn::LowerHalf(half, largest[0]);
    auto b = hn::LowerHalf(half, second[0]);
    MergeLargest(a, b, hn::UpperHalf(half, largest[0]), hn::UpperHalf(half, second[0]));
    if constexpr (kLanes == 8) {
      store(half, a, b);
    } else {
      const hn::Half<hn::Half<ops::DI> > quarter;
      auto c = hn::LowerHalf(quarter, a);
      auto d = hn::LowerHalf(quarter, b);
      MergeLargest(c, d, hn::UpperHalf(quarter, a), hn::UpperHalf(quarter, b));
      store(quarter, c, d);
    }
  }
#endif
}

// Computes v = x 2^c for the tiles of a batch, and the ranges of v.
template <size_t kTile>
HWY_INLINE void ScaleTiles(const float* x, size_t tiles, const ScaleUp& scale_up, float* values,
                           BatchRange* range) {
  constexpr size_t kLeft = ops::kLeft;
  for (size_t tile = 0; tile < tiles; ++tile) {
    ops::VI largest[kLeft];
    ops::VI second[kLeft];
    ops::VF low[kLeft];
    ops::VF high[kLeft];
    for (size_t k = 0; k < kTile / kLanes; ++k) {
      const size_t at = tile * kTile + k * kLanes;
      const auto v = hn::Mul(hn::Mul(ops::Load(x + at), ops::Float(scale_up.first)),
                             ops::Float(scale_up.second));
      ops::Store(v, values + at);
      const auto bits = ops::MagnitudeBits(v);
      const size_t j = k % kLeft;
      if (k < kLeft) {
        largest[j] = bits;
        second[j] = ops::Int(0);
        low[j] = v;
        high[j] = v;
      } else {
        second[j] = hn::Max(second[j], hn::Min(largest[j], bits));
        largest[j] = hn::Max(largest[j], bits);
        low[j] = hn::Min(low[j], v);
        high[j] = hn::Max(high[j], v);
      }
    }
    ops::StoreFour(low, ops::Smallest(), range->low.at[tile]);
    ops::StoreFour(high, ops::Largest(), range->high.at[tile]);
    StoreLargest(largest, second, range->largest.at[tile], range->second.at[tile]);
  }
}

// Step 3 for all tiles of a batch, without the transform itself: finds which tiles are finite,
// which must be transformed, and a1 of each tile, as bits (`largest`).
HWY_INLINE void FindOutliers(const BatchRange& range, float tau, BatchMeta* meta,
                             ops::PerTile<int32_t>* largest) {
  for (size_t tile = 0; tile < kBatch; tile += kLanes) {
    ops::VF l[4];
    ops::VF s[4];
    hn::LoadInterleaved4(ops::DF(), range.largest.at[tile], l[0], l[1], l[2], l[3]);
    hn::LoadInterleaved4(ops::DF(), range.second.at[tile], s[0], s[1], s[2], s[3]);
    auto a1 = ops::AsInt(l[0]);
    auto a2 = ops::AsInt(s[0]);
    for (size_t k = 1; k < 4; ++k) MergeLargest(a1, a2, ops::AsInt(l[k]), ops::AsInt(s[k]));
    ops::Store(a1, largest->at + tile);
    const auto finite = hn::Lt(a1, ops::Int(kF32Infinity));
    const auto outlier = hn::RebindMask(
        ops::DI(), hn::Gt(ops::AsFloat(a1), hn::Mul(ops::Float(tau), ops::AsFloat(a2))));
    ops::Store(hn::VecFromMask(ops::DI(), finite), meta->finite.at + tile);
    ops::Store(hn::VecFromMask(ops::DI(), hn::And(finite, outlier)), meta->transformed.at + tile);
  }
}

// Returns the first position at which the magnitude has these bits. There must be one.
template <size_t kTile>
HWY_INLINE uint32_t FirstOf(const float* values, int32_t magnitude) {
  auto first = ops::Int(static_cast<int32_t>(kTile));
  for (size_t k = 0; k < kTile; k += kLanes) {
    const auto here = hn::Eq(ops::MagnitudeBits(ops::Load(values + k)), ops::Int(magnitude));
    const auto lane = hn::Iota(ops::DI(), static_cast<int32_t>(k));
    first = hn::Min(first, hn::IfThenElse(here, lane, first));
  }
  int32_t lanes[kLanes];
  ops::Store(first, lanes);
  return static_cast<uint32_t>(*std::min_element(lanes, lanes + kLanes));
}

// The rest of step 3: transforms one tile in place. Returns the pivot, and writes the tile's new
// smallest and largest value, each folded to four numbers. `magnitude`: a1, as bits.
template <size_t kTile>
HWY_INLINE uint32_t TransformTile(int32_t magnitude, float* values, float* low_out,
                                  float* high_out) {
  const uint32_t pivot = FirstOf<kTile>(values, magnitude);
  std::swap(values[0], values[pivot]);
  ops::Butterflies<kTile>(values);
  ops::VF low[ops::kLeft];
  ops::VF high[ops::kLeft];
  for (size_t k = 0; k < kTile / kLanes; ++k) {
    const auto v = hn::Mul(ops::Load(values + k * kLanes), ops::Float(kInverseRoot<kTile>));
    ops::Store(v, values + k * kLanes);
    const size_t j = k % ops::kLeft;
    low[j] = k < ops::kLeft ? v : hn::Min(low[j], v);
    high[j] = k < ops::kLeft ? v : hn::Max(high[j], v);
  }
  ops::StoreFour(low, ops::Smallest(), low_out);
  ops::StoreFour(high, ops::Largest(), high_out);
  return pivot;
}

// Step 4: finds the scales and zeros. A tile that is not finite gets the stored scale NaN, and is
// quantized as a tile of zeros.
template <bool kStochastic>
HWY_INLINE void FindScales(const BatchRange& range, BatchMeta* meta) {
  ops::PerTile<float> lows;
  ops::PerTile<float> highs;
  ops::FinishFold(range.low, ops::Smallest(), &lows);
  ops::FinishFold(range.high, ops::Largest(), &highs);
  for (size_t tile = 0; tile < kBatch; tile += kLanes) {
    const auto finite_bits = hn::LoadU(ops::DI(), meta->finite.at + tile);
    const auto finite = hn::RebindMask(ops::DF(), hn::MaskFromVec(finite_bits));
    const auto low = hn::Add(hn::IfThenElseZero(finite, ops::Load(lows.at + tile)), ops::Float(0));
    const auto high =
        hn::Add(hn::IfThenElseZero(finite, ops::Load(highs.at + tile)), ops::Float(0));
    const auto top = ops::Load(meta->top.at + tile);
    ops::VU zero;
    ops::VU scale;
    if constexpr (kStochastic) {
      zero = ops::F32ToF16Down(low);
      scale = ops::F32ToF16Up(hn::Div(hn::Sub(high, ops::F16ToF32(zero)), top));
    } else {
      zero = ops::F32ToF16(low);
      scale = ops::F32ToF16(hn::Div(hn::Sub(high, low), top));
    }
    ops::Store(ops::F16ToF32(zero), meta->origin.at + tile);
    ops::Store(ops::Divisor(ops::F16ToF32(scale)), meta->divisor.at + tile);
    const auto flag =
        hn::And(hn::BitCast(ops::DU(), hn::LoadU(ops::DI(), meta->transformed.at + tile)),
                ops::Bits(kTransformed));
    scale =
        hn::IfThenElse(hn::RebindMask(ops::DU(), finite), hn::Or(scale, flag), ops::Bits(kF16Nan));
    ops::StoreHalves(zero, meta->zero.at + tile);
    ops::StoreHalves(scale, meta->scale.at + tile);
  }
}

// Step 5 for one tile: writes the codes. `random`: the tile's random numbers (rounding.h), used
// only if kStochastic.
template <size_t kTile, bool kStochastic>
HWY_INLINE void QuantizeTile(const float* values, float origin, float divisor, float top,
                             const uint16_t* random, uint8_t* codes) {
  const auto limit = ops::Float(top);
  const auto code = [&](size_t k) HWY_ATTR {
    const auto exact =
        hn::Div(hn::Sub(ops::Load(values + k), ops::Float(origin)), ops::Float(divisor));
    const auto u = hn::Min(hn::Max(exact, ops::Float(0)), limit);
    if constexpr (kStochastic) {
      return hn::ConvertTo(ops::DI(), hn::Min(hn::Add(u, ops::LoadMiddles(random + k)), limit));
    } else {
      return ops::RoundToNearest(u);
    }
  };
  ops::StoreAllCodes<kTile>(code, codes);
}

// The first step of decoding a tile: v = code scale + zero.
template <size_t kTile>
HWY_INLINE void DequantizeTile(const uint8_t* codes, float scale, float zero, float* values) {
  for (size_t k = 0; k < kTile; k += kLanes) {
    const auto product = hn::Mul(ops::LoadCodes(codes + k), ops::Float(scale));
    ops::Store(hn::Add(product, ops::Float(zero)), values + k);
  }
}

// The second step of decoding, only for a transformed tile: undoes the transform and the swap, in
// place.
template <size_t kTile>
HWY_INLINE void TransformBack(uint32_t pivot, float* values) {
  ops::Butterflies<kTile>(values);
  for (size_t k = 0; k < kTile; k += kLanes) {
    ops::Store(hn::Mul(ops::Load(values + k), ops::Float(kInverseRoot<kTile>)), values + k);
  }
  std::swap(values[0], values[pivot]);
}

}  // namespace longhaul::codec::tah::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_TAH_CPU_QUANTIZE_INL_H_
