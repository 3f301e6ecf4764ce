// Steps 1 and 3 to 5 of tah/format.h for one tile, by the lanes that have it.
#ifndef LONGHAUL_CODEC_CUDA_MODULE_TAH_TILE_CUH_
#define LONGHAUL_CODEC_CUDA_MODULE_TAH_TILE_CUH_

#include "codec/cuda/module/device_tile.cuh"
#include "codec/tah/cpu/entropy.h"

namespace longhaul::codec::cuda {

// Log2 of bf16's numbers: what the fraction contributes, by its 7 bits, once for every lane, so that
// no two lanes of a warp read the same bank.
inline constexpr uint32_t kLogTable = 128 * kWarp;
inline constexpr uint32_t kLogSqrtHalf = 0x3f3504f3;  // as Log2's: the fraction's range begins there

__device__ inline void FillLogTable(float* logs) {
  for (uint32_t k = threadIdx.x; k < kLogTable; k += blockDim.x) {
    const uint32_t fraction = (k / kWarp) << 16;
    // In [sqrt(1/2), sqrt(2)), where Log2 adds an exponent of zero.
    const uint32_t exponent = fraction < (kLogSqrtHalf & 0x7fffff) ? 127u : 126u;
    logs[k] = tah::cpu::Log2(__uint_as_float(exponent << 23 | fraction));
  }
}

// As Log2 for a y of 8 significant bits. Subnormals give something else, finite too: their product
// with y is lost beside the largest term.
__device__ inline float LogOfBf16(float y, const float* logs) {
  const uint32_t bits = __float_as_uint(y);
  // 2^23 + exponent + 127, exact.
  const uint32_t biased = 0x4b000000 | (bits + (0x3f800000 - kLogSqrtHalf)) >> 23;
  const float exponent = __uint_as_float(biased) - (8388608.0f + 127.0f);
  return exponent + logs[(bits >> 16 & 127) * kWarp + threadIdx.x % kWarp];
}

// Step 1's sums for a tile. `logs`: the table for values of bf16, else null.
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
#pragma unroll
  for (int count = kPerLane / 2; count > 0; count /= 2) {
#pragma unroll
    for (int k = 0; k < count; ++k) {
      y[k] = y[2 * k] + y[2 * k + 1];
      terms[k] = terms[2 * k] + terms[2 * k + 1];
    }
  }
  constexpr int kLanes = kTileLanes<kTile>;
  return {TileSum<kLanes>(y[0]), TileSum<kLanes>(terms[0])};
}

// The butterflies of step 3, all of the tile's lanes together. Values of other tiles of the warp go
// through it as well: the caller keeps what it wants.
template <int kTile>
__device__ inline void Hadamard(float (&values)[kPerLane]) {
#pragma unroll
  for (int h = 1; h < kPerLane; h *= 2) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      if ((k & h) == 0) {
        const float a = values[k];
        const float b = values[k + h];
        values[k] = a + b;
        values[k + h] = a - b;
      }
    }
  }
#pragma unroll
  for (int distance = 1; distance < kTileLanes<kTile>; distance *= 2) {
    const bool upper = (threadIdx.x & distance) != 0;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const float other = __shfl_xor_sync(kAllLanes, values[k], distance);
      values[k] = upper ? other - values[k] : values[k] + other;
    }
  }
  constexpr float kInverseRoot = kTile == 32 ? 0.176776695f : kTile == 64 ? 0.125f : 0.0883883476f;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) values[k] = values[k] * kInverseRoot;
}

// Swaps slot 0 of the tile with slot `pivot`.
template <int kTile>
__device__ inline void SwapPivot(uint32_t pivot, float (&values)[kPerLane]) {
  constexpr uint32_t kLanes = kTileLanes<kTile>;
  const uint32_t lane = threadIdx.x % kLanes;
  float mine = 0;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) mine = pivot % kPerLane == k ? values[k] : mine;
  const float of_pivot = __shfl_sync(kAllLanes, mine, pivot / kPerLane, kLanes);
  const float of_zero = __shfl_sync(kAllLanes, values[0], 0, kLanes);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    if (lane * kPerLane + k == pivot) values[k] = of_zero;
  }
  if (lane == 0) values[0] = of_pivot;
}

// Step 3 for the tiles of a warp: true where it was transformed.
template <int kTile>
__device__ inline bool TransformOutliers(float tau, bool finite, float (&values)[kPerLane],
                                         uint32_t* pivot) {
  constexpr int kLanes = kTileLanes<kTile>;
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t largest = TileMax<kLanes>(LaneMagnitude(values));
  uint32_t first = kTile;
#pragma unroll
  for (int k = kPerLane - 1; k >= 0; --k) {
    if ((__float_as_uint(values[k]) & 0x7fffffff) == largest) first = lane * kPerLane + k;
  }
  // The lowest position, as the highest of what is above it.
  first = kTile - TileMax<kLanes>(kTile - first);
  uint32_t second = 0;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const uint32_t magnitude = __float_as_uint(values[k]) & 0x7fffffff;
    if (lane * kPerLane + k != first) second = max(second, magnitude);
  }
  second = TileMax<kLanes>(second);
  const bool transformed = finite && __uint_as_float(largest) > tau * __uint_as_float(second);
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

struct CodedTile {
  uint16_t scale = 0;  // with the sign bit of a transformed tile
  uint16_t zero = 0;
  uint32_t pivot = 0;
  uint32_t planes[2] = {0, 0};  // this lane's two bytes of planes 0 and 1, 2 and 3
};

// Steps 3 to 5. `element`: the first of the tile, for the noise.
template <int kTile>
__device__ inline CodedTile CodeTile(const TahArgs& args, const ScaleUp& scale_up, bool four,
                                     uint64_t element, float (&values)[kPerLane]) {
  constexpr int kLanes = kTileLanes<kTile>;
  const uint32_t lane = threadIdx.x % kLanes;
  // NaN iff an element is not finite.
  float probe = 0;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) probe = __fmaf_rn(values[k], 0.0f, probe);
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
  const bool broken = TileMax<kLanes>(static_cast<uint32_t>(probe != probe)) != 0;

  CodedTile coded;
  // Where two lanes have a value that is not small beside the largest, there is no outlier.
  const float largest = fmaxf(high, -low);
  const uint32_t alike = __ballot_sync(kAllLanes, args.tau * lane_largest >= largest);
  const uint32_t of_tile =
      alike >> (threadIdx.x % kWarp - lane) & static_cast<uint32_t>((1ull << kLanes) - 1);
  bool transformed = false;
  if (__any_sync(kAllLanes, __popc(of_tile) < 2)) {
    transformed = TransformOutliers<kTile>(args.tau, !broken, values, &coded.pivot);
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
  const bool stochastic = args.stochastic != 0;
  coded.zero = stochastic ? ToHalfDown(minimum) : ToHalf(minimum);
  const float zero = FromHalf(coded.zero);
  const float exact = Divide(maximum - (stochastic ? zero : minimum), top, top_reciprocal);
  coded.scale = stochastic ? ToHalfUp(exact) : ToHalf(exact);
  const float scale = FromHalf(coded.scale);
  if (transformed) coded.scale |= 0x8000;
  if (!(scale > 0)) return coded;
  const float reciprocal = __frcp_rn(scale);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    values[k] = fminf(fmaxf(Divide(values[k] - zero, scale, reciprocal), 0.0f), top);
  }
  uint32_t words[2] = {0, 0};
  if (!stochastic) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const uint32_t code = __float_as_uint(values[k] + kRoundMagic) - kRoundMagicBits;
      words[k / 8] += code << NibbleShift(k % 8);
    }
  } else {
    const uint32_t limit = four ? 15 : 7;
#pragma unroll
    for (int four = 0; four < kPerLane; four += 4) {
      float noise[4];
      FourNoises(args.noise, element + lane * kPerLane + four, noise);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t code =
            min(static_cast<uint32_t>(__float2int_rd(values[four + k] + noise[k])), limit);
        words[(four + k) / 8] |= code << NibbleShift((four + k) % 8);
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

#endif  // LONGHAUL_CODEC_CUDA_MODULE_TAH_TILE_CUH_
