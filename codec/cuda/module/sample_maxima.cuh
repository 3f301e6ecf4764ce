// The largest of what a kernel's warps have seen of each sample, in zeroed memory of MaximaBytes.
#pragma once

#include "codec/cuda/module/device_tile.cuh"

namespace longhaul::codec::cuda {

class SampleMaxima {
 public:
  __device__ explicit SampleMaxima(unsigned char* memory_dev)
      : words_(reinterpret_cast<uint32_t*>(memory_dev)) {}

  // `place`: any number, not the same for all blocks.
  __device__ void Raise(uint32_t sample, uint32_t place, uint32_t value) const {
    atomicMax(Word(sample, place % kMaximumPlaces), value);
  }

  // When all is raised, by kernels before this one: of what this lane knows, for the largest over a
  // warp's lanes.
  __device__ uint32_t Part(uint32_t sample) const {
    const uint32_t lane = threadIdx.x % kWarp;
    return lane < kMaximumPlaces ? *Word(sample, lane) : 0;
  }
  // By a warp, for each lane's sample.
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
