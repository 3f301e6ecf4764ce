// Steps 1 and 3 to 5 of tah/format.h for one tile. The lanes that share the tile (device_tile.cuh)
// work together; all 32 lanes of a warp must call each function.
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/tah/cpu/entropy.h"

namespace longhaul::codec::cuda {

// A table in shared memory for Log2 of bf16 numbers: the logarithm of each of the 128 fractions. It
// has a copy for each lane, so that no two lanes of a warp read the same bank.
inline constexpr uint32_t kLogTable = 128 * kWarp;
inline constexpr uint32_t kLogSqrtHalf =
    0x3f3504f3;  // the bits of sqrt(1/2), as kSqrtHalf of entropy.h

__device__ inline void FillLogTable(float* logs) {
  for (uint32_t k = threadIdx.x; k < kLogTable; k += blockDim.x) {
    const uint32_t fraction = (k / kWarp) << 16;
    // In [sqrt(1/2), sqrt(2)), where Log2 adds an exponent of zero.
    const uint32_t exponent = fraction < (kLogSqrtHalf & 0x7fffff) ? 127u : 126u;
    logs[k] = tah::cpu::Log2(__uint_as_float(exponent << 23 | fraction));
  }
}

// As Log2 for a y of 8 significant bits. Subnormals get another finite value, which does no harm:
// the product with y is too small to change the sum.
__device__ inline float LogOfBf16(float y, const float* logs) {
  const uint32_t bits = __float_as_uint(y);
  // 2^23 + exponent + 127, exact.
  const uint32_t biased = 0x4b000000 | (bits + (0x3f800000 - kLogSqrtHalf)) >> 23;
  const float exponent = __uint_as_float(biased) - (8388608.0f + 127.0f);
  return exponent + logs[(bits >> 16 & 127) * kWarp + threadIdx.x % kWarp];
}

// One level of a fold over lanes: adds the values of the lane at kDistance. While a lane has
// several values (kCount), each of the two lanes keeps the sums of one half of the values.
template <int kDistance, int kCount>
__device__ inline void FoldLevel(float (&values)[kPerLane]) {
  if constexpr (kCount == 1) {
    values[0] = values[0] + __shfl_xor_sync(kAllLanes, values[0], kDistance);
  } else {
    const bool upper = (threadIdx.x & kDistance) != 0;
#pragma unroll
    for (int k = 0; k < kCount / 2; ++k) {
      const float kept = upper ? values[k + kCount / 2] : values[k];
      const float given = upper ? values[k] : values[k + kCount / 2];
      values[k] = kept + __shfl_xor_sync(kAllLanes, given, kDistance);
    }
  }
}

// Sums a tile by folding halves in the order of step 1. The values must be loaded by OfBothHalves,
// so that the first fold is within a lane. Every lane of the tile gets the sum.
template <int kTile>
__device__ inline float FoldTile(float (&values)[kPerLane]) {
#pragma unroll
  for (int k = 0; k < kPerLane / 2; ++k) values[k] = values[k] + values[k + kPerLane / 2];
  if constexpr (kTile == 32) {
    FoldLevel<1, 8>(values);
    FoldLevel<1, 4>(values);
    FoldLevel<1, 2>(values);
    FoldLevel<1, 1>(values);
  } else if constexpr (kTile == 64) {
    FoldLevel<2, 8>(values);
    FoldLevel<1, 4>(values);
    FoldLevel<2, 2>(values);
    FoldLevel<1, 1>(values);
    FoldLevel<2, 1>(values);
  } else {
    FoldLevel<4, 8>(values);
    FoldLevel<2, 4>(values);
    FoldLevel<1, 2>(values);
    FoldLevel<4, 1>(values);
    FoldLevel<2, 1>(values);
    FoldLevel<1, 1>(values);
  }
  return values[0];
}

// Returns step 1's sums for a tile of values loaded by OfBothHalves. `logs`: the table of
// FillLogTable if the values are bf16; null: the logarithms are computed.
template <int kTile>
__device__ inline tah::cpu::EntropySums TileSums(const float (&values)[kPerLane],
                                                 const ScaleUp& scale, const float* logs) {
  float y[kPerLane];
  float terms[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) y[k] = fabsf(values[k]) * scale.first;
  if (__any_sync(kAllLanes, scale.second != 1.0f)) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) y[k] = y[k] * scale.second;
  }
  if (logs != nullptr) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) terms[k] = y[k] * LogOfBf16(y[k], logs);
  } else {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) terms[k] = y[k] * tah::cpu::Log2(y[k]);
  }
  return {FoldTile<kTile>(y), FoldTile<kTile>(terms)};
}

// The butterflies within a lane, of distance kDistance and larger.
template <int kDistance>
__device__ inline void Butterflies(float (&values)[kPerLane]) {
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    if ((k & kDistance) == 0) {
      const float a = values[k];
      const float b = values[k + kDistance];
      values[k] = a + b;
      values[k + kDistance] = a - b;
    }
  }
  if constexpr (2 * kDistance < kPerLane) Butterflies<2 * kDistance>(values);
}

// The butterflies between lanes, of kDistance lanes and more.
template <int kDistance, int kLanes>
__device__ inline void LaneButterflies(float (&values)[kPerLane]) {
  const bool upper = (threadIdx.x & kDistance) != 0;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const float other = __shfl_xor_sync(kAllLanes, values[k], kDistance);
    values[k] = upper ? other - values[k] : values[k] + other;
  }
  if constexpr (2 * kDistance < kLanes) LaneButterflies<2 * kDistance, kLanes>(values);
}

// The transform of step 3. All tiles of the warp are transformed; a caller that does not want the
// result for a tile keeps a copy of the tile's values.
template <int kTile>
__device__ inline void Hadamard(float (&values)[kPerLane]) {
  Butterflies<1>(values);
  LaneButterflies<1, kTileLanes<kTile>>(values);
  constexpr float kInverseRoot = kTile == 32 ? 0.176776695f : kTile == 64 ? 0.125f : 0.0883883476f;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) values[k] = values[k] * kInverseRoot;
}

// Returns values[index % kCount]. Selects by the bits of the index, because the compiler moves an
// array with a run-time index out of the registers.
template <int kCount>
__device__ inline float Pick(const float* values, uint32_t index) {
  if constexpr (kCount == 1) {
    return values[0];
  } else {
    const float low = Pick<kCount / 2>(values, index);
    const float high = Pick<kCount / 2>(values + kCount / 2, index);
    return (index & (kCount / 2)) != 0 ? high : low;
  }
}

// Swaps element 0 of the tile with element `pivot`.
template <int kTile>
__device__ inline void SwapPivot(uint32_t pivot, float (&values)[kPerLane]) {
  constexpr uint32_t kLanes = kTileLanes<kTile>;
  const uint32_t lane = threadIdx.x % kLanes;
  const float mine = Pick<kPerLane>(values, pivot);
  const float of_pivot = __shfl_sync(kAllLanes, mine, pivot / kPerLane, kLanes);
  const float of_zero = __shfl_sync(kAllLanes, values[0], 0, kLanes);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    if (lane * kPerLane + k == pivot) values[k] = of_zero;
  }
  if (lane == 0) values[0] = of_pivot;
}

// Step 3 for the tiles of a warp. `largest`: a1 of the lane's tile. Returns whether the lane's tile
// was transformed; if so, sets *pivot.
template <int kTile>
__device__ inline bool TransformOutliers(float tau, float largest, bool finite,
                                         float (&values)[kPerLane], uint32_t* pivot) {
  constexpr int kLanes = kTileLanes<kTile>;
  const uint32_t lane = threadIdx.x % kLanes;
  uint32_t equal = 0;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    if (fabsf(values[k]) == largest) equal |= 1u << k;
  }
  uint32_t first = equal != 0 ? lane * kPerLane + __ffs(static_cast<int>(equal)) - 1 : kTile;
  // The lowest position of a1, computed as a maximum of kTile - position.
  first = kTile - TileMax<kLanes>(kTile - first);
  const uint32_t without = equal & ~(first / kPerLane == lane ? 1u << first % kPerLane : 0u);
  float second = without != 0 ? largest : 0.0f;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const float magnitude = fabsf(values[k]);
    second = fmaxf(second, magnitude < largest ? magnitude : 0.0f);
  }
  second = TileMax<kLanes>(second);
  const bool transformed = finite && largest > tau * second;
  if (!__any_sync(kAllLanes, transformed)) return false;
  float changed[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) changed[k] = values[k];
  SwapPivot<kTile>(first, changed);
  Hadamard<kTile>(changed);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) values[k] = transformed ? changed[k] : values[k];
  if (transformed) *pivot = first;
  return transformed;
}

// The sum of kRoundMagicBits at the places of eight codes.
inline constexpr uint32_t kMagicOfEight = [] {
  uint32_t sum = 0;
  for (int k = 0; k < 8; ++k) sum += kRoundMagicBits << NibbleShift(k);
  return sum;
}();

// An encoded tile. All lanes of the tile have the same scale, zero and pivot.
struct CodedTile {
  uint16_t scale = 0;  // with the sign bit of a transformed tile
  uint16_t zero = 0;
  uint32_t pivot = 0;
  // This lane's two bytes of each plane: planes 0 and 1 in the first word, 2 and 3 in the second.
  uint32_t planes[2] = {0, 0};
};

// Steps 3 to 5 for a tile loaded by InARow. `scale_up`: multiplies by 2^c. `four`: the tile has 4
// bits. `element`: index of the tile's first element for the random numbers. Overwrites *mine.
template <int kTile, bool kStochastic>
__device__ inline CodedTile CodeTile(const TahArgs& args, const ScaleUp& scale_up, bool four,
                                     uint64_t element, Lane* mine) {
  constexpr int kLanes = kTileLanes<kTile>;
  const uint32_t lane = threadIdx.x % kLanes;
  float(&values)[kPerLane] = mine->values;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) values[k] = values[k] * scale_up.first;
  if (scale_up.second != 1.0f) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) values[k] = values[k] * scale_up.second;
  }
  float low = values[0];
  float high = values[0];
#pragma unroll
  for (int k = 1; k < kPerLane; ++k) {
    low = fminf(low, values[k]);
    high = fmaxf(high, values[k]);
  }
  const float lane_largest = fmaxf(high, -low);
  low = -TileMax<kLanes>(-low);
  high = TileMax<kLanes>(high);
  const bool broken = TileMax<kLanes>(mine->magnitude) >= kF32Infinity;

  CodedTile coded;
  // If two lanes have a value v with tau |v| >= a1, then a1 <= tau a2, and there is no outlier.
  const float largest = fmaxf(high, -low);
  const uint32_t alike = __ballot_sync(kAllLanes, args.tau * lane_largest >= largest);
  const uint32_t of_tile =
      alike >> (threadIdx.x % kWarp - lane) & static_cast<uint32_t>((1ull << kLanes) - 1);
  bool transformed = false;
  if (__any_sync(kAllLanes, __popc(of_tile) < 2)) {
    transformed = TransformOutliers<kTile>(args.tau, largest, !broken, values, &coded.pivot);
    low = values[0];
    high = values[0];
#pragma unroll
    for (int k = 1; k < kPerLane; ++k) {
      low = fminf(low, values[k]);
      high = fmaxf(high, values[k]);
    }
    low = -TileMax<kLanes>(-low);
    high = TileMax<kLanes>(high);
  }
  if (broken) {
    coded.scale = kF16Nan;
    return coded;
  }

  const float minimum = low + 0.0f;
  const float maximum = high + 0.0f;
  const float top = four ? 15.0f : 7.0f;
  const float top_reciprocal = four ? 1.0f / 15.0f : 1.0f / 7.0f;
  coded.zero = kStochastic ? ToHalfDown(minimum) : ToHalf(minimum);
  const float zero = FromHalf(coded.zero);
  const float exact = Divide(maximum - (kStochastic ? zero : minimum), top, top_reciprocal);
  coded.scale = kStochastic ? ToHalfUp(exact) : ToHalf(exact);
  const float scale = FromHalf(coded.scale);
  if (transformed) coded.scale |= 0x8000;
  if (!(scale > 0)) return coded;
  // u / 16, so that the hardware's saturation to [0, 1] clamps u at 0.
  const float divisor = 16 * scale;
  const float reciprocal = __frcp_rn(divisor);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    values[k] = fminf(__saturatef(Divide(values[k] - zero, divisor, reciprocal)), top / 16);
  }
  uint32_t words[2] = {0, 0};
  if constexpr (!kStochastic) {
    // Sums the codes with the bits of kRoundMagic above them, and subtracts these bits at the end.
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const uint32_t code = __float_as_uint(__fmaf_rn(values[k], 16.0f, kRoundMagic));
      words[k / 8] += code << NibbleShift(k % 8);
    }
    words[0] -= kMagicOfEight;
    words[1] -= kMagicOfEight;
  } else {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) values[k] = values[k] * 16;
    const uint32_t limit = four ? 15 : 7;
#pragma unroll
    for (int eight = 0; eight < kPerLane; eight += 8) {
      const Philox::Counter noises =
          EightNoises(args.noise, (element + lane * kPerLane + eight) / 8);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float sum = __fadd_rn(values[eight + k], MiddleOf(noises, k));
        const uint32_t code = min(static_cast<uint32_t>(__float2int_rd(sum)), limit);
        words[eight / 8] |= code << NibbleShift(k);
      }
    }
  }
  const uint32_t first = TransposeNibbles(words[0]);
  const uint32_t second = TransposeNibbles(words[1]);
  coded.planes[0] = __byte_perm(first, second, 0x5140);
  coded.planes[1] = __byte_perm(first, second, 0x7362);
  return coded;
}

}  // namespace longhaul::codec::cuda
