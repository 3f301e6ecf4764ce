// Steps that codecs with tiles share, for one target of Highway, a batch of tiles at a time. A tile
// has kTile elements, a power of two of 32 or more, and fills several vectors. Numbers about tiles
// (largest magnitude, scale, ...) lie in arrays with one number for each tile, so that one vector
// operation handles as many tiles as it has lanes.
#if defined(LONGHAUL_CODEC_SIMD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_SIMD_TILE_INL_H_
#undef LONGHAUL_CODEC_SIMD_TILE_INL_H_
#else
#define LONGHAUL_CODEC_SIMD_TILE_INL_H_
#endif

#include <cstring>

#include "codec/planes.h"
#include "codec/scale.h"
#include "codec/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::simd::HWY_NAMESPACE {

// Number of tiles in a batch; a multiple of kLanes on every target.
inline constexpr size_t kBatch = 16;

// One number of each tile of a batch.
template <class T>
struct alignas(64) PerTile {
  T at[kBatch] = {};
};

// --- Folding -------------------------------------------------------------------
// A tile is folded to combine its numbers to one (sum, largest, ...): element k is combined with
// element k + kTile / 2, then element k of the result with element k + kTile / 4, and so on.
// FoldToFour folds a tile to four numbers. FinishFold does the last two steps for all tiles of a
// batch.

struct alignas(64) FourPerTile {
  float at[kBatch][4] = {};
};

struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Smallest {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Min(a, b);
  }
};
struct Largest {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

// Returns the larger of two magnitudes. Compares their bits as integers, so NaNs are the largest.
struct LargestBits {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    const hn::DFromV<V> d;
    const hn::RebindToSigned<decltype(d)> di;
    return hn::BitCast(d, hn::Max(hn::BitCast(di, a), hn::BitCast(di, b)));
  }
};

// Number of vectors to which FoldToFour folds a tile before StoreFour: as many vectors as have four
// numbers, or one vector if a vector has four or more.
inline constexpr size_t kLeft = kLanes < 4 ? 4 / kLanes : 1;

// Folds the kLeft vectors at `v` to four numbers, and stores the numbers to out[0..3].
template <class Op>
HWY_INLINE void StoreFour(const VF* v, Op op, float* out) {
#if HWY_TARGET == HWY_SCALAR
  (void)op;
  for (size_t k = 0; k < kLeft; ++k) out[k] = hn::GetLane(v[k]);
#else
  if constexpr (kLanes == 4) {
    hn::StoreU(v[0], DF(), out);
  } else {
    const hn::Half<DF> half;
    const auto folded = op(hn::LowerHalf(half, v[0]), hn::UpperHalf(half, v[0]));
    if constexpr (kLanes == 8) {
      hn::StoreU(folded, half, out);
    } else {
      const hn::Half<hn::Half<DF> > quarter;
      hn::StoreU(op(hn::LowerHalf(quarter, folded), hn::UpperHalf(quarter, folded)), quarter, out);
    }
  }
#endif
}

// Folds a tile to four numbers. `v`: its kVecs vectors, which are overwritten.
template <size_t kVecs, class Op>
HWY_INLINE void FoldToFour(VF* v, Op op, float* out) {
  for (size_t half = kVecs / 2; half >= kLeft; half /= 2) {
    for (size_t k = 0; k < half; ++k) v[k] = op(v[k], v[k + half]);
  }
  StoreFour(v, op, out);
}

template <class Op>
HWY_INLINE void FinishFold(const FourPerTile& four, Op op, PerTile<float>* out) {
  for (size_t tile = 0; tile < kBatch; tile += kLanes) {
    VF v0, v1, v2, v3;
    hn::LoadInterleaved4(DF(), four.at[tile], v0, v1, v2, v3);
    Store(op(op(v0, v2), op(v1, v3)), out->at + tile);
  }
}

// --- Magnitudes ------------------------------------------------------------------

// Computes each tile's largest magnitude as bits of fp32: kF32Infinity or more if and only if an
// element is not finite. The places behind the last of the `tiles` tiles get 0.
template <size_t kTile>
HWY_INLINE void LargestMagnitudes(const float* x, size_t tiles, PerTile<int32_t>* largest) {
  constexpr size_t kVecs = kTile / kLanes;
  FourPerTile four;
  for (size_t tile = 0; tile < tiles; ++tile) {
    VF left[kLeft];
    for (size_t k = 0; k < kLeft; ++k) left[k] = hn::Zero(DF());
    for (size_t k = 0; k < kVecs; ++k) {
      const VI bits = MagnitudeBits(Load(x + tile * kTile + k * kLanes));
      left[k % kLeft] = AsFloat(hn::Max(AsInt(left[k % kLeft]), bits));
    }
    StoreFour(left, LargestBits(), four.at[tile]);
  }
  PerTile<float> folded;
  FinishFold(four, LargestBits(), &folded);
  std::memcpy(largest->at, folded.at, sizeof(largest->at));
}

// Returns the largest magnitude over the tiles without NaN and infinity, as bits of fp32.
HWY_INLINE uint32_t LargestFinite(const PerTile<int32_t>& largest) {
  int32_t found = 0;
  for (const int32_t bits : largest.at) {
    found = bits < static_cast<int32_t>(kF32Infinity) && bits > found ? bits : found;
  }
  return static_cast<uint32_t>(found);
}

// --- Scales ------------------------------------------------------------------------

// Returns the divisor for quantization with a scale. A scale of 0 gives infinity, so that all
// quotients are zeros.
HWY_INLINE VF Divisor(VF scale) {
  return hn::IfThenElse(hn::Gt(scale, Float(0)), scale, AsFloat(Bits(kF32Infinity)));
}

// --- Rounding ------------------------------------------------------------------------

// Rounds |value| < 2^22 to the nearest integer, ties to even.
HWY_INLINE VI RoundToNearest(VF value) {
  return hn::Sub(AsInt(hn::Add(value, Float(kRoundMagic))), Int(kRoundMagicBits));
}

// --- Bit planes ------------------------------------------------------------------------

// Packs bits first_bit, ..., first_bit + bits - 1 of kTile codes to `bits` contiguous planes
// (planes.h), each of kTile / 8 bytes.
template <size_t kTile>
HWY_INLINE void PackPlanes(const uint8_t* codes, int first_bit, int bits, std::byte* planes) {
#if HWY_TARGET == HWY_SCALAR
  for (int bit = 0; bit < bits; ++bit) {
    PackPlane<kTile>(codes, first_bit + bit, planes + static_cast<size_t>(bit) * (kTile / 8));
  }
#else
  const hn::CappedTag<uint8_t, kTile> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Repartition<uint16_t, decltype(d)> d16;
  constexpr size_t kGroup = hn::MaxLanes(d);
  for (size_t first = 0; first < kTile; first += kGroup) {
    // Moves the highest bit to pack to the top of each byte. Bits that the shift brings from the
    // byte below stay under the bits to pack.
    auto v = hn::BitCast(
        d, hn::ShiftLeftSame(hn::BitCast(d16, hn::LoadU(d, codes + first)), 8 - first_bit - bits));
    for (int bit = bits - 1; bit >= 0; --bit) {
      uint64_t word = 0;
      hn::StoreMaskBits(di, hn::Lt(hn::BitCast(di, v), hn::Zero(di)),
                        reinterpret_cast<uint8_t*>(&word));
      std::memcpy(planes + (static_cast<size_t>(bit) * kTile + first) / 8, &word, kGroup / 8);
      v = hn::Add(v, v);
    }
  }
#endif
}

// Unpacks `bits` contiguous planes into kTile codes.
template <size_t kTile>
HWY_INLINE void UnpackPlanes(const std::byte* planes, int bits, uint8_t* codes) {
#if HWY_TARGET == HWY_SCALAR
  std::memset(codes, 0, kTile);
  for (int bit = 0; bit < bits; ++bit) {
    UnpackPlane<kTile>(planes + static_cast<size_t>(bit) * (kTile / 8), bit, codes);
  }
#else
  const hn::CappedTag<uint8_t, kTile> d;
  constexpr size_t kGroup = hn::MaxLanes(d);
  for (size_t first = 0; first < kTile; first += kGroup) {
    auto v = hn::Zero(d);
    for (int bit = bits - 1; bit >= 0; --bit) {
      uint64_t word = 0;
      std::memcpy(&word, planes + (static_cast<size_t>(bit) * kTile + first) / 8, kGroup / 8);
      const auto mask = hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&word));
      v = hn::Sub(hn::Add(v, v), hn::VecFromMask(d, mask));
    }
    hn::StoreU(v, d, codes + first);
  }
#endif
}

// --- Codes and their bytes ---------------------------------------------------------------

// Loads kLanes bytes as floats.
HWY_INLINE VF LoadCodes(const uint8_t* from) {
  return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(DU8(), from)));
}

// Stores four vectors of numbers from 0 to 255 as contiguous bytes.
HWY_INLINE void StoreCodes(VI c0, VI c1, VI c2, VI c3, uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = static_cast<uint8_t>(hn::GetLane(c0));
  to[1] = static_cast<uint8_t>(hn::GetLane(c1));
  to[2] = static_cast<uint8_t>(hn::GetLane(c2));
  to[3] = static_cast<uint8_t>(hn::GetLane(c3));
#else
  const hn::Repartition<uint8_t, DI> d8;
  // First, byte j of lane i is the number in lane i of vector j. Then every block of 16 bytes has
  // four bytes of each vector. At last the bytes of a vector lie next to each other.
  const VI mixed = hn::Or(hn::Or(c0, hn::ShiftLeft<8>(c1)),
                          hn::Or(hn::ShiftLeft<16>(c2), hn::ShiftLeft<24>(c3)));
  alignas(16) static constexpr uint8_t kTranspose[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                         2, 6, 10, 14, 3, 7, 11, 15};
  const auto quarters =
      hn::TableLookupBytes(hn::BitCast(d8, mixed), hn::LoadDup128(d8, kTranspose));
  VI packed = hn::BitCast(DI(), quarters);
  if constexpr (kLanes > 4) {
    constexpr int32_t kBlocks = static_cast<int32_t>(kLanes / 4);
    alignas(64) int32_t order[kLanes];
    for (int32_t k = 0; k < static_cast<int32_t>(kLanes); ++k) {
      order[k] = k % kBlocks * 4 + k / kBlocks;
    }
    packed = hn::TableLookupLanes(packed, hn::SetTableIndices(DI(), order));
  }
  hn::StoreU(hn::BitCast(d8, packed), d8, to);
#endif
}

// Stores kTile numbers from 0 to 255 as bytes. function(k) returns numbers k, ..., k + kLanes - 1.
template <size_t kTile, class Function>
HWY_INLINE void StoreAllCodes(Function&& function, uint8_t* to) {
  if constexpr (kTile < 4 * kLanes) {
    static_assert(kTile == 2 * kLanes);
    alignas(64) uint8_t four[4 * kLanes];
    StoreCodes(function(0), function(kLanes), Int(0), Int(0), four);
    std::memcpy(to, four, kTile);
    return;
  }
  for (size_t k = 0; k < kTile; k += 4 * kLanes) {
    const VI c0 = function(k);
    const VI c1 = function(k + kLanes);
    const VI c2 = function(k + 2 * kLanes);
    const VI c3 = function(k + 3 * kLanes);
    StoreCodes(c0, c1, c2, c3, to + k);
  }
}

}  // namespace longhaul::codec::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_SIMD_TILE_INL_H_
