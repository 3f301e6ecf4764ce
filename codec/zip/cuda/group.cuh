// Shared by the kernels of zip. A warp handles a group of 1,024 elements: four rows of 256, with
// eight consecutive elements of each row in each lane (codec/zip/format.h).
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/eights.cuh"
#include "codec/zip/cuda/kernels.h"
#include "codec/zip/groups.h"

namespace longhaul::codec::cuda {

inline constexpr int kZipRows = zip::kGroup / zip::kRow;
static_assert(kZipGroups * kWarp == kThreads);

// Returns how many of the eight elements from `first` on exist. `elements`: size of the tensor.
__device__ inline int CountAt(uint64_t first, uint64_t elements) {
  if (first >= elements) return 0;
  const uint64_t left = elements - first;
  return left < kAtATime ? static_cast<int>(left) : kAtATime;
}

// The sum of `value` over the earlier lanes of the warp, and over all lanes.
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

// Exchanges bytes between four lanes. Before, byte r of a lane belongs to row r. The result of lane
// 4 q + r has the bytes of row r of the lanes 4 q to 4 q + 3, which is a word of the plane. The
// function is its own inverse. All lanes of the warp must call it.
__device__ inline uint32_t Transposed(uint32_t bytes) {
  const unsigned lane = threadIdx.x % kWarp;
  const uint32_t next = __shfl_xor_sync(kAllLanes, bytes, 1);
  const uint32_t pair = __byte_perm(bytes, next, lane % 2 == 0 ? 0x6240 : 0x3715);
  const uint32_t other = __shfl_xor_sync(kAllLanes, pair, 2);
  return __byte_perm(pair, other, lane / 2 % 2 == 0 ? 0x5410 : 0x3276);
}
// Returns the byte offset of a lane's word (Transposed) in the group's part of a plane.
__device__ inline uint32_t WordOffset(unsigned lane) {
  return (lane % 4 * (zip::kRow / kAtATime / 4) + lane / 4) * 4;
}

// Swaps the bits of `word` at mask `from` with the bits that are `distance` places above. PlanesOf
// uses this to swap two bits of the index of each bit.
__device__ inline uint32_t SwapPlaces(uint32_t word, uint32_t from, int distance) {
  const uint32_t differs = (word ^ word >> distance) & from;
  return word ^ differs ^ differs << distance;
}
// PlanesOf turns the codes of a lane's eight elements in a row into bit planes; CodesOf is the
// inverse. In a word of codes, element 2 k is at bit 4 k, and element 2 k + 1 at bit 16 + 4 k. A
// word of planes has one byte for each plane; the highest byte is 0. The index of bit p of element
// v in a word of codes is, in binary, (v0 v2 v1 p1 p0); in a word of planes (p1 p0 v2 v1 v0).
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

// Returns the index in the group of the element that bit `bit` of a lane's mask stands for. Such a
// mask has one byte for each row.
__device__ inline uint32_t PlaceOf(unsigned lane, uint32_t bit) {
  return bit / kAtATime * zip::kRow + lane * kAtATime + bit % kAtATime;
}

}  // namespace longhaul::codec::cuda
