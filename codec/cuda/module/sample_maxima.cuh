// Collects one maximum for each sample from all warps of a kernel. The memory has MaximaBytes
// (kernel_args.h), and must be zeroed before the kernel. A sample has several words with partial
// maxima, so that warps seldom wait for the same word.
#pragma once

#include "codec/cuda/module/device_tile.cuh"

namespace longhaul::codec::cuda {

class SampleMaxima {
 public:
  __device__ explicit SampleMaxima(unsigned char* memory_dev)
      : words_(reinterpret_cast<uint32_t*>(memory_dev)) {}

  // Raises the sample's maximum to `value` if `value` is larger. `place` chooses the word: a number
  // that differs between thread blocks, for example blockIdx.x.
  __device__ void Raise(uint32_t sample, uint32_t place, uint32_t value) const {
    atomicMax(Word(sample, place % kMaximumPlaces), value);
  }

  // Returns this lane's part of the sample's maximum: the largest part over the lanes of a warp is
  // the maximum. Part and Of are for kernels after the kernel that calls Raise.
  __device__ uint32_t Part(uint32_t sample) const {
    const uint32_t lane = threadIdx.x % kWarp;
    return lane < kMaximumPlaces ? *Word(sample, lane) : 0;
  }
  // Returns the maximum of `sample`, which may differ between lanes. All lanes of the warp must
  // call it.
  __device__ uint32_t Of(uint32_t sample) const {
    const uint32_t first = __shfl_sync(kAllLanes, sample, 0);
    if (__all_sync(kAllLanes, sample == first)) return __reduce_max_sync(kAllLanes, Part(first));
    uint32_t largest = 0;
#pragma unroll
    for (uint32_t place = 0; place < kMaximumPlaces; ++place) {
      largest = max(largest, *Word(sample, place));
    }
    return largest;
  }

 private:
  __device__ uint32_t* Word(uint32_t sample, uint32_t place) const {
    return words_ + (uint64_t{sample} * kMaximumPlaces + place) * kMaximumStride;
  }

  uint32_t* const words_;
};

}  // namespace longhaul::codec::cuda
