// What both kernels of zip share: a group of 1,024 elements belongs to a warp, which has four rows
// of it, eight elements of each in every lane (codec/zip/format.h).
#ifndef LONGHAUL_CODEC_CUDA_MODULE_ZIP_GROUP_CUH_
#define LONGHAUL_CODEC_CUDA_MODULE_ZIP_GROUP_CUH_

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/eights.cuh"
#include "codec/zip/groups.h"

namespace longhaul::codec::cuda {

inline constexpr int kZipRows = zip::kGroup / zip::kRow;
static_assert(kZipGroups * kWarp == kThreads);

// Of the elements behind the last: how many a lane has in a row that begins at `first`.
__device__ inline int CountAt(uint64_t first, uint64_t elements) {
  if (first >= elements) return 0;
  const uint64_t left = elements - first;
  return left < kAtATime ? static_cast<int>(left) : kAtATime;
}

// Of lanes before this one, and of the warp.
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

// The element of a group that bit `bit` of a lane's mask stands for: a byte a row.
__device__ inline uint32_t PlaceOf(unsigned lane, uint32_t bit) {
  return bit / kAtATime * zip::kRow + lane * kAtATime + bit % kAtATime;
}

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_MODULE_ZIP_GROUP_CUH_
