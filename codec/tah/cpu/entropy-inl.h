// Steps 1 and 2 of format.h for one target of Highway: computes the entropies of a batch of tiles,
// and finds the allocation tiles with the highest entropies.
#if defined(LONGHAUL_CODEC_TAH_CPU_ENTROPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_TAH_CPU_ENTROPY_INL_H_
#undef LONGHAUL_CODEC_TAH_CPU_ENTROPY_INL_H_
#else
#define LONGHAUL_CODEC_TAH_CPU_ENTROPY_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "codec/simd/tile-inl.h"
#include "codec/tah/cpu/entropy.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::tah::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace ops = longhaul::codec::simd::HWY_NAMESPACE;
using ops::kBatch;
using ops::kLanes;

// As cpu::Log2 (entropy.h), with the same operations and so the same bits.
HWY_INLINE ops::VF Log2(ops::VF value) {
  const auto bits = ops::AsInt(value);
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, ops::Int(kSqrtHalf)));
  const auto f =
      hn::Sub(ops::AsFloat(hn::Sub(bits, hn::ShiftLeft<23>(exponent))), ops::Float(1.0f));
  auto sum = ops::Float(kLog2Terms[0]);
  for (int k = 1; k < 9; ++k) sum = hn::Add(hn::Mul(sum, f), ops::Float(kLog2Terms[k]));
  return hn::Add(hn::ConvertTo(ops::DF(), exponent), hn::Mul(sum, f));
}

// For each tile the two factors, as in ScaleUp, that scale its largest magnitude into [2, 4).
struct EntropyScales {
  ops::PerTile<float> first, second;
};
HWY_INLINE void FindEntropyScales(const ops::PerTile<int32_t>& largest, EntropyScales* scales) {
  for (size_t tile = 0; tile < kBatch; tile += kLanes) {
    const auto bits = ops::Load(largest.at + tile);
    // The clamps keep the exponent in Pow2's range for tiles without a finite value above 0, too.
    const auto exponent =
        hn::Max(hn::Min(hn::Sub(ops::Int(1), ops::FloorLog2(bits)), ops::Int(150)), ops::Int(-126));
    ops::Store(ops::Pow2(hn::Min(exponent, ops::Int(127))), scales->first.at + tile);
    ops::Store(ops::Pow2(hn::Max(hn::Sub(exponent, ops::Int(127)), ops::Int(0))),
               scales->second.at + tile);
  }
}

struct TileSums {
  ops::PerTile<float> n, l;  // as in EntropySums
};

template <size_t kTile>
HWY_INLINE void SumTiles(const float* x, size_t tiles, const EntropyScales& scales,
                         TileSums* sums) {
  constexpr size_t kVecs = kTile / kLanes;
  ops::FourPerTile n;
  ops::FourPerTile l;
  for (size_t tile = 0; tile < tiles; ++tile) {
    const auto first = ops::Float(scales.first.at[tile]);
    const auto second = ops::Float(scales.second.at[tile]);
    // The first fold is done here, so that only half as many vectors are alive at a time.
    constexpr size_t kHalf = kVecs / 2;
    ops::VF y[kHalf];
    ops::VF terms[kHalf];
    for (size_t k = 0; k < kHalf; ++k) {
      const float* const at = x + tile * kTile + k * kLanes;
      const auto y0 = hn::Mul(hn::Mul(hn::Abs(ops::Load(at)), first), second);
      const auto y1 = hn::Mul(hn::Mul(hn::Abs(ops::Load(at + kTile / 2)), first), second);
      y[k] = hn::Add(y0, y1);
      terms[k] = hn::Add(hn::Mul(y0, Log2(y0)), hn::Mul(y1, Log2(y1)));
    }
    ops::FoldToFour<kHalf>(y, ops::Sum(), n.at[tile]);
    ops::FoldToFour<kHalf>(terms, ops::Sum(), l.at[tile]);
  }
  ops::FinishFold(n, ops::Sum(), &sums->n);
  ops::FinishFold(l, ops::Sum(), &sums->l);
}

// Computes SortKey(Entropy(...)) of each tile. Used if every allocation tile is only one tile.
HWY_INLINE void FindKeys(const ops::PerTile<int32_t>& largest, const TileSums& sums,
                         ops::PerTile<int32_t>* keys) {
  for (size_t tile = 0; tile < kBatch; tile += kLanes) {
    const auto n = ops::Load(sums.n.at + tile);
    const auto l = ops::Load(sums.l.at + tile);
    auto entropy = hn::Sub(Log2(n), hn::Div(l, n));
    entropy = hn::IfThenElseZero(hn::Gt(n, hn::Zero(ops::DF())), entropy);
    const auto bits = ops::AsInt(hn::Add(entropy, ops::Float(0.0f)));
    auto key = hn::IfThenElse(hn::Lt(bits, ops::Int(0)), hn::And(bits, ops::Int(0x7fffffff)),
                              hn::Not(bits));
    // The entropy of a tile that is not finite is -infinity.
    key = hn::IfThenElse(hn::Lt(ops::Load(largest.at + tile), ops::Int(kF32Infinity)), key,
                         ops::Int(kF32Infinity));
    ops::Store(key, keys->at + tile);
  }
}

// Returns how many of the `count` keys are <= bound.
HWY_INLINE uint64_t CountUpTo(const int32_t* keys, uint64_t count, int32_t bound) {
  const auto limit = ops::Int(bound);
  auto above = hn::Zero(ops::DI());
  uint64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    const auto mask = hn::Gt(ops::Load(keys + k), limit);
    above = hn::Sub(above, hn::VecFromMask(ops::DI(), mask));
  }
  int32_t lanes[kLanes];
  ops::Store(above, lanes);
  uint64_t found = k;
  for (const int32_t lane : lanes) found -= static_cast<uint64_t>(lane);
  for (; k < count; ++k) found += keys[k] <= bound ? 1 : 0;
  return found;
}

// Sets the bits of the `fours` lowest keys, 0 < fours < count, and clears the others. Among equal
// keys the lower index comes first. Does not sort: finds the highest of these keys, `cut`, by
// binary search over the values of keys. Writes whole words of 64 bits, so `bits` needs room for
// `count` bits rounded up to words.
HWY_INLINE void MarkLowest(const int32_t* keys, uint64_t count, uint64_t fours, std::byte* bits) {
  int64_t low = *std::min_element(keys, keys + count);
  int64_t high = *std::max_element(keys, keys + count);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (CountUpTo(keys, count, static_cast<int32_t>(middle)) >= fours) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const auto cut = static_cast<int32_t>(low);
  uint64_t equal_left = fours;
  for (uint64_t k = 0; k < count; ++k) equal_left -= keys[k] < cut ? 1 : 0;
  for (uint64_t first = 0; first < count; first += 64) {
    uint64_t marked = 0;
    uint64_t equal = 0;
    const uint64_t used = std::min<uint64_t>(64, count - first);
    for (uint64_t k = 0; k < used; ++k) {
      marked |= uint64_t{keys[first + k] < cut} << k;
      equal |= uint64_t{keys[first + k] == cut} << k;
    }
    for (; equal != 0 && equal_left > 0; equal &= equal - 1, --equal_left) {
      marked |= equal & ~(equal - 1);
    }
    std::memcpy(bits + first / 8, &marked, 8);
  }
}

}  // namespace longhaul::codec::tah::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_TAH_CPU_ENTROPY_INL_H_
