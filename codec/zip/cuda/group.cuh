// What both kernels of zip share: a group of 1,024 elements belongs to a warp, which has four rows
// of it, eight elements of each in every lane (codec/zip/format.h).
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/eights.cuh"
#include "codec/zip/cuda/kernels.h"
#include "codec/zip/groups.h"

namespace longhaul::codec::cuda {

inline constexpr int kZipRows = zip::kGroup / zip::kRow;
static_assert(kZipGroups * kWarp == kThreads);

// How many elements a lane has in a row that begins at `first`.
__device__ inline int CountAt(uint64_t first, uint64_t elements) {
  if (first >= elements) return 0;
  const uint64_t left = elements - first;
  return left < kAtATime ? static_cast<int>(left) : kAtATime;
}

// The sum over the lanes before this one, and over the warp.
struct WarpSum {
  uint32_t before, all;
};
__device__ inline WarpSum SumOverWarp(uint32_t value) {
  const unsigned lane = threadIdx.x % kWarp;
  uint32_t sum = value;
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += below;
  }
  return {sum - value, __shfl_sync(kAllLanes, sum, kWarp - 1)};
}

// Between lanes' bytes and a plane's words: byte r of a lane is row r's, and afterwards lane 4 q +
// r has the four bytes of row r of lanes 4 q to 4 q + 3. The other way round it is the same.
__device__ inline uint32_t Transposed(uint32_t bytes) {
  const unsigned lane = threadIdx.x % kWarp;
  const uint32_t next = __shfl_xor_sync(kAllLanes, bytes, 1);
  const uint32_t pair = __byte_perm(bytes, next, lane % 2 == 0 ? 0x6240 : 0x3715);
  const uint32_t other = __shfl_xor_sync(kAllLanes, pair, 2);
  return __byte_perm(pair, other, lane / 2 % 2 == 0 ? 0x5410 : 0x3276);
}
// Where such a word stands in the group's part of a plane.
__device__ inline uint32_t WordOffset(unsigned lane) {
  return (lane % 4 * (zip::kRow / kAtATime / 4) + lane / 4) * 4;
}

// Swaps two bits of the places of a word's bits: those where one is set and the other is not.
__device__ inline uint32_t SwapPlaces(uint32_t word, uint32_t from, int distance) {
  const uint32_t differs = (word ^ word >> distance) & from;
  return word ^ differs ^ differs << distance;
}
// A lane's eight codes in a row: of elements 2 k in bits 4 k and above, of elements 2 k + 1 in bits
// 16 + 4 k and above. And the same as bit planes, a byte each, the highest byte 0. Bit p of element
// v stands at (v0 v2 v1 p1 p0) of the one, at (p1 p0 v2 v1 v0) of the other.
__device__ inline uint32_t PlanesOf(uint32_t codes) {
  codes = SwapPlaces(codes, 0x0000aaaa, 15);  // v0 and p0: (p0 v2 v1 p1 v0)
  codes = SwapPlaces(codes, 0x0000cccc, 14);  // p0 and p1: (p1 v2 v1 p0 v0)
  codes = SwapPlaces(codes, 0x00cc00cc, 6);   // v2 and p0: (p1 p0 v1 v2 v0)
  return SwapPlaces(codes, 0x0c0c0c0c, 2);    // v1 and v2: (p1 p0 v2 v1 v0)
}
__device__ inline uint32_t CodesOf(uint32_t planes) {
  planes = SwapPlaces(planes, 0x0c0c0c0c, 2);
  planes = SwapPlaces(planes, 0x00cc00cc, 6);
  planes = SwapPlaces(planes, 0x0000cccc, 14);
  return SwapPlaces(planes, 0x0000aaaa, 15);
}

// The element of a group that bit `bit` of a lane's mask stands for: a byte a row.
__device__ inline uint32_t PlaceOf(unsigned lane, uint32_t bit) {
  return bit / kAtATime * zip::kRow + lane * kAtATime + bit % kAtATime;
}

}  // namespace longhaul::codec::cuda
