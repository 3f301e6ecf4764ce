// Sums of all before, for arrays of some ten thousand numbers: one block.
#ifndef LONGHAUL_CODEC_CUDA_MODULE_TAGC_SCAN_CUH_
#define LONGHAUL_CODEC_CUDA_MODULE_TAGC_SCAN_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace longhaul::codec::cuda {

inline constexpr unsigned kScanThreads = 1024;

// numbers[k] becomes the sum of those before it.
static __global__ void __launch_bounds__(kScanThreads)
    ScanKernel(uint32_t* numbers, uint64_t count) {
  constexpr unsigned kWarps = kScanThreads / 32;
  __shared__ uint32_t of_warps[kWarps];
  uint32_t before = 0;
  for (uint64_t at = 0; at < count; at += kScanThreads) {
    const uint64_t k = at + threadIdx.x;
    const uint32_t own = k < count ? numbers[k] : 0;
    uint32_t sum = own;  // of this warp's lanes up to this one
    for (unsigned distance = 1; distance < 32; distance *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffff, sum, distance);
      if (threadIdx.x % 32 >= distance) sum += other;
    }
    if (threadIdx.x % 32 == 31) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    uint32_t all = 0;
    uint32_t warps_before = 0;
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      if (warp < threadIdx.x / 32) warps_before += of_warps[warp];
      all += of_warps[warp];
    }
    if (k < count) numbers[k] = before + warps_before + sum - own;
    before += all;
    __syncthreads();
  }
}

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_MODULE_TAGC_SCAN_CUH_
