// Helpers for the kernels of codecs that work on tiles. kTileLanes neighbouring lanes of a warp
// share a tile, and each lane has 16 of its elements. So most steps of a sum or of a Hadamard
// transform stay within a lane, and a lane has whole bytes of every bit plane (codec/planes.h).
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/philox.h"
#include "codec/convert.h"
#include "codec/cuda/kernel_args.h"
#include "codec/scale.h"

namespace longhaul::codec::cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kThreads = 256;  // of a thread block
inline constexpr unsigned kAllLanes = 0xffffffff;
inline constexpr int kPerLane = 16;  // elements of a tile in each lane
// The size of a blob's header, and the offsets of two of its fields (codec/blob.h).
inline constexpr uint64_t kHeaderBytes = 64;
inline constexpr uint64_t kNonfiniteOffset = 48;
inline constexpr uint64_t kPayloadBytesOffset = 24;
inline constexpr uint32_t kF32 = 1, kF16 = 2, kBf16 = 3;  // Dtype of codec/codec.h

template <int kTile>
inline constexpr int kTileLanes = kTile / kPerLane;

// Returns the error of the last launch or CUDA call, 0 for success. Clears the error, so that a
// later cudaGetLastError does not report it again.
inline int Launched() {
  return cudaGetLastError();
}

__host__ __device__ inline uint64_t SampleBytes(const TensorArgs& tensor) {
  return uint64_t{tensor.tokens} * tensor.channels * (tensor.dtype == kF32 ? 4 : 2);
}

// The place of a tile in the tensor.
struct TilePlace {
  uint64_t offset;  // index of the tile's first element
  uint32_t count;   // elements that are not padding
};

// Returns the place of tile number `tile` of a token. `token` counts over all samples.
__device__ inline TilePlace Place(const TensorArgs& tensor, uint32_t token, uint32_t tile,
                                  uint32_t tile_size) {
  const uint32_t channel = tile * tile_size;
  return {uint64_t{token} * tensor.channels + channel, min(tensor.channels - channel, tile_size)};
}

__device__ inline uint32_t operator/(uint32_t number, const Divisor& divisor) {
  if (divisor.value == 1) return number;
  const uint64_t low = __umulhi(static_cast<uint32_t>(divisor.reciprocal), number);
  return static_cast<uint32_t>(((divisor.reciprocal >> 32) * number + low) >> 32);
}

// Returns whether the memory of every token begins at a multiple of 16 bytes.
__device__ inline bool Vectorised(const TensorArgs& tensor) {
  const uint32_t bytes = tensor.dtype == kF32 ? 4 : 2;
  return (reinterpret_cast<uintptr_t>(tensor.data_dev) | (uint64_t{tensor.channels} * bytes)) %
             16 ==
         0;
}

__device__ inline float LoadElement(const void* data, uint32_t dtype, uint64_t index) {
  if (dtype == kF32) return static_cast<const float*>(data)[index];
  const uint16_t raw = static_cast<const uint16_t*>(data)[index];
  return dtype == kBf16 ? Bf16ToF32(raw) : F16ToF32(raw);
}

// Rounds to nearest even. A value too large for the dtype becomes an infinity.
__device__ inline void StoreElement(float value, void* data, uint32_t dtype, uint64_t index) {
  if (dtype == kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<uint16_t*>(data)[index] = dtype == kBf16 ? F32ToBf16(value) : F32ToF16(value);
  }
}

// The elements of a tile that one lane has, as fp32.
struct Lane {
  float values[kPerLane];
  // Bits of the largest magnitude; at least kF32Infinity iff an element is not finite.
  uint32_t magnitude;
};

__device__ inline uint32_t MagnitudeOf(const float (&values)[kPerLane]) {
  uint32_t largest = 0;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    largest = max(largest, __float_as_uint(values[k]) & 0x7fffffff);
  }
  return largest;
}

// The elements of a tile that a lane has: eight from `first` on, and eight from `second` on.
struct LanePlace {
  uint32_t first, second;
};
// Sixteen consecutive elements. `lane`: the lane's number in its tile.
__device__ inline LanePlace InARow(uint32_t lane) {
  return {lane * kPerLane, lane * kPerLane + kPerLane / 2};
}
// Eight consecutive elements in each half of the tile.
template <int kTile>
__device__ inline LanePlace OfBothHalves(uint32_t lane) {
  return {lane * kPerLane / 2, kTile / 2 + lane * kPerLane / 2};
}

// Loads a lane's elements of a tile; padding becomes 0. `vectorised`: Vectorised(tensor).
__device__ inline void LoadLane(const TensorArgs& tensor, bool vectorised, const TilePlace& place,
                                const LanePlace& lane, Lane* out) {
  float(&values)[kPerLane] = out->values;
  constexpr int kHalf = kPerLane / 2;
  if (!vectorised || lane.second + kHalf > place.count) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const uint32_t element = k < kHalf ? lane.first + k : lane.second + k - kHalf;
      values[k] = element < place.count
                      ? LoadElement(tensor.data_dev, tensor.dtype, place.offset + element)
                      : 0.0f;
    }
    out->magnitude = MagnitudeOf(values);
    return;
  }
  if (tensor.dtype == kF32) {
    const auto* data = static_cast<const float*>(tensor.data_dev) + place.offset;
#pragma unroll
    for (int k = 0; k < kPerLane / 4; ++k) {
      const uint32_t element = k < 2 ? lane.first + 4 * k : lane.second + 4 * k - kHalf;
      const float4 four = *reinterpret_cast<const float4*>(data + element);
      values[4 * k] = four.x;
      values[4 * k + 1] = four.y;
      values[4 * k + 2] = four.z;
      values[4 * k + 3] = four.w;
    }
    out->magnitude = MagnitudeOf(values);
    return;
  }
  const auto* data = static_cast<const uint16_t*>(tensor.data_dev) + place.offset;
  const uint4 low = *reinterpret_cast<const uint4*>(data + lane.first);
  const uint4 high = *reinterpret_cast<const uint4*>(data + lane.second);
  const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  uint32_t largest = words[0] & 0x7fff7fff;
#pragma unroll
  for (int k = 1; k < 8; ++k) largest = __vmaxu2(largest, words[k] & 0x7fff7fff);
  largest = max(largest >> 16, largest & 0xffff);
  if (tensor.dtype == kBf16) {
    out->magnitude = largest << 16;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      values[2 * k] = __uint_as_float(words[k] << 16);
      values[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000);
    }
  } else {
    out->magnitude = __float_as_uint(F16ToF32(static_cast<uint16_t>(largest)));
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[k]));
      values[2 * k] = two.x;
      values[2 * k + 1] = two.y;
    }
  }
}

// Returns the largest finite number of the dtype.
__device__ inline float LargestFinite(uint32_t dtype) {
  return __uint_as_float(dtype == kF32 ? 0x7f7fffff : dtype == kBf16 ? 0x7f7f0000 : 0x477fe000);
}

// Stores a lane's elements (InARow) times 2^-exponent, as StoreElements of simd/elements.h: a
// product outside the dtype's range becomes the dtype's largest number. If not `finite`, stores
// NaNs. Magnitudes must be 0 or from 2^-40 to 2^26. Overwrites `values`.
__device__ inline void StoreLane(const TensorArgs& tensor, bool vectorised, const TilePlace& place,
                                 uint32_t lane, bool finite, int exponent,
                                 float (&values)[kPerLane]) {
  const uint32_t first = lane * kPerLane;
  // Nearly always no product leaves the normal range. Then one multiplication is exact.
  constexpr int kMost = 80;
  if (exponent <= kMost && exponent >= (tensor.dtype == kF16 ? 11 : -kMost)) {
    const float scale = Pow2(-exponent);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) values[k] = values[k] * scale;
  } else {
    const ScaleBack scale_back(exponent);
    const float limit = LargestFinite(tensor.dtype);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      values[k] = fminf(fmaxf(scale_back(values[k]), -limit), limit);
    }
  }
  if (!finite) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) values[k] = __uint_as_float(0x7fc00000);
  }
  if (!vectorised || first + kPerLane > place.count) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      if (first + k < place.count) {
        StoreElement(values[k], tensor.data_dev, tensor.dtype, place.offset + first + k);
      }
    }
    return;
  }
  if (tensor.dtype == kF32) {
    auto* to =
        reinterpret_cast<float4*>(static_cast<float*>(tensor.data_dev) + place.offset + first);
#pragma unroll
    for (int k = 0; k < kPerLane / 4; ++k) {
      to[k] = make_float4(values[4 * k], values[4 * k + 1], values[4 * k + 2], values[4 * k + 3]);
    }
    return;
  }
  uint32_t words[8];
  if (tensor.dtype == kBf16) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      // Rounds to nearest even as F32ToBf16 does, but makes another NaN.
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
          : "=r"(words[k])
          : "f"(values[2 * k + 1]), "f"(values[2 * k]));
    }
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const __half2 two = __floats2half2_rn(values[2 * k], values[2 * k + 1]);
      words[k] = *reinterpret_cast<const uint32_t*>(&two);
    }
  }
  if (!finite) {
#pragma unroll
    for (int k = 0; k < 8; ++k) words[k] = tensor.dtype == kBf16 ? 0x7fc07fc0 : 0x7e007e00;
  }
  auto* to =
      reinterpret_cast<uint4*>(static_cast<uint16_t*>(tensor.data_dev) + place.offset + first);
  to[0] = make_uint4(words[0], words[1], words[2], words[3]);
  to[1] = make_uint4(words[4], words[5], words[6], words[7]);
}

// Convert to fp16 and back, with the same bits as convert.h: ToHalf and FromHalf in hardware.
// `value` must be finite and below 65504 in magnitude.
__device__ inline uint16_t ToHalf(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
__device__ inline float FromHalf(uint16_t half) {
  return __half2float(__ushort_as_half(half));
}
__device__ inline uint16_t ToHalfUp(float value) {
  return F32ToF16Up(value);
}
__device__ inline uint16_t ToHalfDown(float value) {
  return F32ToF16Down(value);
}

// Returns the maximum over the kLanes lanes of a tile, in each of these lanes. All lanes of the
// warp must call it.
template <int kLanes>
__device__ inline uint32_t TileMax(uint32_t value) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    value = max(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}
template <int kLanes>
__device__ inline float TileMax(float value) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}
// Returns a / b, correctly rounded. b must be above 0 and have at most 11 significant bits, as fp16
// has. `reciprocal`: 1 / b, correctly rounded. The first quotient is wrong by at most two units in
// the last place, and the remainder is exact. A quotient by a number of 11 bits is never so close
// to the middle of two floats that the second quotient rounds wrongly. A remainder below the normal
// range loses bits only if the quotient is below 2^-60.
__device__ inline float Divide(float a, float b, float reciprocal) {
  const float quotient = __fmul_rn(a, reciprocal);
  const float remainder = __fmaf_rn(-quotient, b, a);
  return __fmaf_rn(remainder, reciprocal, quotient);
}

// Returns the random numbers (rounding.h) of elements 8 * index to 8 * index + 7, two in each word.
// `block`: RoundingNoise::block(). NoiseOf returns the number of element 8 * index + k.
__device__ inline Philox::Counter EightNoises(const uint32_t* block, uint64_t index) {
  return Philox::Generate<kNoiseRounds>(
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), block[0], block[1]},
      {block[2], block[3]});
}
__device__ inline uint32_t NoiseOf(const Philox::Counter& eight, int k) {
  return eight[k / 2] >> k % 2 * 16 & 0xffff;
}
// Returns RoundingNoise::Middle of number k: (number + 1/2) 2^-16. Both steps are exact.
__device__ inline float MiddleOf(const Philox::Counter& eight, int k) {
  return (__uint_as_float(0x4b000000 | NoiseOf(eight, k)) - 8388607.5f) * 0x1p-16f;
}

// Swaps the bits of `word` at `mask` with the bits that are `shift` places above.
__device__ inline uint32_t SwapBits(uint32_t word, int shift, uint32_t mask) {
  const uint32_t differing = (word ^ (word >> shift)) & mask;
  return word ^ differing ^ (differing << shift);
}

// Turns eight codes of 4 bits into one byte for each of the bit planes 0 to 3, and back: the
// function is its own inverse. In a word of codes, bit p of code k is at index 8 (k % 4) +
// 4 (k / 4) + p, in binary (k1 k0 k2 p1 p0). In a word of planes it is at (p1 p0 k2 k1 k0).
__device__ inline uint32_t TransposeNibbles(uint32_t word) {
  // Swaps bit 4 of the index with bit 1, then bit 3 with bit 0.
  word = SwapBits(word, 16 - 2, 0x0000cccc);
  return SwapBits(word, 8 - 1, 0x00aa00aa);
}

// Returns the index of the lowest bit of code k in a word of eight codes (TransposeNibbles).
__host__ __device__ constexpr int NibbleShift(int k) {
  return 8 * (k % 4) + 4 * (k / 4);
}

}  // namespace longhaul::codec::cuda
