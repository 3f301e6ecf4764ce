// Steps 1 to 5 of format.h for one block, and decoding, in vectors of up to 8 lanes. kernels.cc
// compiles this file once for each instruction set; all sets give the same bytes. A block has
// `size` elements, a power of two from 64 to 512.
#if defined(LONGHAUL_CODEC_GAUSS_CPU_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGHAUL_CODEC_GAUSS_CPU_BLOCK_INL_H_
#undef LONGHAUL_CODEC_GAUSS_CPU_BLOCK_INL_H_
#else
#define LONGHAUL_CODEC_GAUSS_CPU_BLOCK_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/gauss/arithmetic.h"
#include "codec/gauss/format.h"

HWY_BEFORE_NAMESPACE();
namespace longhaul::codec::gauss::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 8>;
using Words = hn::RebindToUnsigned<Floats>;
using Vector = hn::Vec<Floats>;
using Mask = hn::Mask<Floats>;
inline constexpr Floats kFloats;
inline constexpr Words kWords;
inline constexpr size_t kLanes = hn::MaxLanes(kFloats);
static_assert(kLanes == 1 || kLanes == 4 || kLanes == 8);

// Returns the largest magnitude as bits of fp32: kF32Infinity or more if and only if an element is
// not finite.
HWY_INLINE uint32_t LargestMagnitude(const float* values, size_t size) {
  const auto magnitude = hn::Set(kWords, 0x7fffffffu);
  auto largest = hn::Zero(kWords);
  for (size_t k = 0; k < size; k += kLanes) {
    const auto bits = hn::BitCast(kWords, hn::Load(kFloats, values + k));
    largest = hn::Max(largest, hn::And(bits, magnitude));
  }
  return hn::GetLane(hn::MaxOfLanes(kWords, largest));
}

// Step 1, in place: scales the values and changes signs. `signs`: kSigns as sign bits of floats.
HWY_INLINE void Normalize(const ScaleUp& scale, const float* signs, size_t size, float* values) {
  const auto first = hn::Set(kFloats, scale.first);
  const auto second = hn::Set(kFloats, scale.second);
  for (size_t k = 0; k < size; k += kLanes) {
    const auto y = hn::Mul(hn::Mul(hn::Load(kFloats, values + k), first), second);
    hn::Store(hn::Xor(y, hn::Load(kFloats, signs + k)), kFloats, values + k);
  }
}

// Step 2: returns M.
HWY_INLINE float SumOfSquares(const float* y, size_t size) {
  alignas(64) float sums[kMaxBlock / 2];
  sums[0] = 0;  // g++ does not know that there are elements
  size_t half = size / 2;
  for (size_t k = 0; k < half; k += kLanes) {
    const auto low = hn::Load(kFloats, y + k);
    const auto high = hn::Load(kFloats, y + half + k);
    hn::Store(hn::Add(hn::Mul(low, low), hn::Mul(high, high)), kFloats, sums + k);
  }
  for (half /= 2; half >= kLanes; half /= 2) {
    for (size_t k = 0; k < half; k += kLanes) {
      const auto sum = hn::Add(hn::Load(kFloats, sums + k), hn::Load(kFloats, sums + half + k));
      hn::Store(sum, kFloats, sums + k);
    }
  }
  for (; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) sums[k] = sums[k] + sums[half + k];
  }
  return sums[0];
}

// Lane k gets v[k ^ kDistance] + v[k] or, if k & kDistance is not 0, v[k ^ kDistance] - v[k]. The
// order of the two terms does not matter, because both orders of a sum give the same bits.
template <size_t kDistance>
HWY_INLINE Vector ButterflyInVector(Vector v) {
  alignas(64) static constexpr struct Minus {
    constexpr Minus() {
      for (size_t k = 0; k < kLanes; ++k) bits[k] = (k & kDistance) != 0 ? 0x80000000u : 0u;
    }
    uint32_t bits[kLanes] = {};
  } kMinus;
  const auto signs = hn::BitCast(kFloats, hn::Load(kWords, kMinus.bits));
  Vector other = v;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kDistance == 1) {
    other = hn::Reverse2(kFloats, v);
  } else if constexpr (kDistance == 2) {
    other = hn::Shuffle1032(v);
  } else {
    other = hn::ConcatLowerUpper(kFloats, v, v);
  }
#endif
  return hn::Add(other, hn::Xor(v, signs));
}

// Step 3 for the distances below kLanes, within one vector.
HWY_INLINE Vector TransformInVector(Vector v) {
  if constexpr (kLanes > 1) v = ButterflyInVector<1>(v);
  if constexpr (kLanes > 2) v = ButterflyInVector<2>(v);
  if constexpr (kLanes > 4) v = ButterflyInVector<4>(v);
  return v;
}

// Step 3 for the distances from kLanes on, two distances at a time.
HWY_INLINE void TransformAcross(size_t size, float* values) {
  size_t distance = kLanes;
  for (; 4 * distance <= size; distance *= 4) {
    for (size_t group = 0; group < size; group += 4 * distance) {
      for (size_t k = group; k < group + distance; k += kLanes) {
        const auto a0 = hn::Load(kFloats, values + k);
        const auto a1 = hn::Load(kFloats, values + k + distance);
        const auto a2 = hn::Load(kFloats, values + k + 2 * distance);
        const auto a3 = hn::Load(kFloats, values + k + 3 * distance);
        const auto b0 = hn::Add(a0, a1);
        const auto b1 = hn::Sub(a0, a1);
        const auto b2 = hn::Add(a2, a3);
        const auto b3 = hn::Sub(a2, a3);
        hn::Store(hn::Add(b0, b2), kFloats, values + k);
        hn::Store(hn::Add(b1, b3), kFloats, values + k + distance);
        hn::Store(hn::Sub(b0, b2), kFloats, values + k + 2 * distance);
        hn::Store(hn::Sub(b1, b3), kFloats, values + k + 3 * distance);
      }
    }
  }
  if (distance == size) return;
  for (size_t k = 0; k < distance; k += kLanes) {
    const auto a = hn::Load(kFloats, values + k);
    const auto b = hn::Load(kFloats, values + k + distance);
    hn::Store(hn::Add(a, b), kFloats, values + k);
    hn::Store(hn::Sub(a, b), kFloats, values + k + distance);
  }
}

// Returns the lanes of a mask as bits, lane 0 as bit 0.
HWY_INLINE uint64_t BitsOf(Mask mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(kFloats, mask, bytes);
  return bytes[0];
}

// Makes a mask of the lowest kLanes bits, bit 0 as lane 0.
HWY_INLINE Mask MaskOf(uint64_t bits) {
  uint8_t bytes[8];
  std::memcpy(bytes, &bits, sizeof(bytes));
  return hn::LoadMaskBits(kFloats, bytes);
}

// Compares |u| with threshold kJ and all higher ones, and updates the parities (see Quantize).
template <int kBits, int kJ>
HWY_INLINE void CompareFrom(Vector magnitude, Mask* parity) {
  const auto reached = hn::Ge(magnitude, hn::Set(kFloats, kThreshold<kBits, kJ>));
  for (int p = 0; p < kBits - 1; ++p) {
    if (kJ % (1 << p) == 0) parity[p] = hn::Xor(parity[p], reached);
  }
  if constexpr (kJ + 1 < 1 << (kBits - 1)) CompareFrom<kBits, kJ + 1>(magnitude, parity);
}

// Step 5: writes the b planes of the transformed block. j is the number of thresholds that |u|
// reaches, which are the lowest j. So bit p of j is 1 if |u| reaches an odd number of the
// thresholds 2^p, 2 x 2^p, 3 x 2^p, ...
template <int kBits>
HWY_INLINE void Quantize(const float* y, size_t size, float inverse_root, std::byte* planes) {
  const auto factor = hn::Set(kFloats, inverse_root);
  for (size_t group = 0; group < size; group += 64) {
    uint64_t words[kBits] = {};
    for (size_t lane = 0; lane < 64; lane += kLanes) {
      const auto u = hn::Mul(hn::Load(kFloats, y + group + lane), factor);
      const auto magnitude = hn::Abs(u);
      Mask parity[kBits - 1];
      for (int p = 0; p < kBits - 1; ++p) parity[p] = hn::MaskFromVec(hn::Zero(kFloats));
      CompareFrom<kBits, 1>(magnitude, parity);
      for (int p = 0; p < kBits - 1; ++p) words[p] |= BitsOf(parity[p]) << lane;
      const auto negative = hn::MaskFromVec(
          hn::BitCast(kFloats, hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<Floats>(), u))));
      words[kBits - 1] |= BitsOf(negative) << lane;
    }
    for (int p = 0; p < kBits; ++p) {
      std::memcpy(planes + (static_cast<size_t>(p) * size + group) / 8, &words[p], 8);
    }
  }
}

// Returns in each lane the level of the lane's code: one of the kCount levels from kFirst on. The
// lowest log2(kCount) planes choose among the levels.
template <int kBits, int kCount, int kFirst = 0>
HWY_INLINE Vector Choose(const Mask* planes) {
  if constexpr (kCount == 1) {
    return hn::Set(kFloats, kLevel<kBits, kFirst>);
  } else {
    constexpr int kHalf = kCount / 2;
    constexpr int kPlane = std::bit_width(static_cast<unsigned>(kHalf)) - 1;
    return hn::IfThenElse(planes[kPlane], Choose<kBits, kHalf, kFirst + kHalf>(planes),
                          Choose<kBits, kHalf, kFirst>(planes));
  }
}

// Turns codes into levels with their signs, and does step 3 for the distances below kLanes.
template <int kBits>
HWY_INLINE void Dequantize(const std::byte* planes, size_t size, float* values) {
  for (size_t group = 0; group < size; group += 64) {
    uint64_t words[kBits];
    for (int p = 0; p < kBits; ++p) {
      std::memcpy(&words[p], planes + (static_cast<size_t>(p) * size + group) / 8, 8);
    }
    for (size_t lane = 0; lane < 64; lane += kLanes) {
      Mask masks[kBits];
      for (int p = 0; p < kBits; ++p) masks[p] = MaskOf(words[p] >> lane);
      const auto level = Choose<kBits, 1 << (kBits - 1)>(masks);
      const auto sign =
          hn::And(hn::VecFromMask(kFloats, masks[kBits - 1]), hn::Set(kFloats, -0.0f));
      hn::Store(TransformInVector(hn::Xor(level, sign)), kFloats, values + group + lane);
    }
  }
}

// Encodes a block whose elements are finite and not all zero. Overwrites `values`. `largest`: from
// LargestMagnitude. Returns the block's q.
template <int kBits>
HWY_INLINE int16_t EncodeBlock(uint32_t largest, const float* signs, size_t size, float* values,
                               std::byte* planes) {
  const int exponent = FloorLog2(largest);
  Normalize(ScaleUp(1 - exponent), signs, size, values);
  const int root = RootIndex(SumOfSquares(values, size));
  for (size_t k = 0; k < size; k += kLanes) {
    hn::Store(TransformInVector(hn::Load(kFloats, values + k)), kFloats, values + k);
  }
  TransformAcross(size, values);
  Quantize<kBits>(values, size, InverseRoot(root), planes);
  const int log2_size = std::bit_width(size) - 1;
  return static_cast<int16_t>(4 * (exponent - 1) + root - 2 * log2_size);
}

template <int kBits>
HWY_INLINE void DecodeBlock(const std::byte* planes, const BlockScale& scale, const float* signs,
                            size_t size, float* values) {
  Dequantize<kBits>(planes, size, values);
  TransformAcross(size, values);
  const auto first = hn::Set(kFloats, scale.first);
  const auto second = hn::Set(kFloats, scale.second);
  for (size_t k = 0; k < size; k += kLanes) {
    const auto x = hn::Mul(hn::Mul(hn::Load(kFloats, values + k), first), second);
    hn::Store(hn::Xor(x, hn::Load(kFloats, signs + k)), kFloats, values + k);
  }
}

}  // namespace longhaul::codec::gauss::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LONGHAUL_CODEC_GAUSS_CPU_BLOCK_INL_H_
