// Shared by fixed's encoder and decoder for whole tiles (codec/cuda/module/whole_tiles.cuh).
#pragma once

#include "codec/cuda/module/whole_tiles.cuh"
#include "codec/fixed/cuda/fixed.cuh"

namespace longhaul::codec::cuda {

inline constexpr uint32_t kPlaneBytes = kWholeTile / 8;  // of one tile

// Bit b of byte i of word j becomes bit 8 i + j of word b. If byte i of word j has code 8 i + j of
// 32 codes, the words become bit planes. The function is its own inverse.
__device__ inline void TransposeEight(uint32_t (&words)[8]) {
#pragma unroll
  for (int k = 0; k < 8; k += 2) ExchangeBits<1, 0x55555555>(words[k], words[k + 1]);
#pragma unroll
  for (int k = 0; k < 8; k += 4) {
    ExchangeBits<2, 0x33333333>(words[k], words[k + 2]);
    ExchangeBits<2, 0x33333333>(words[k + 1], words[k + 3]);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) ExchangeBits<4, 0x0f0f0f0f>(words[k], words[k + 4]);
}

// Queues a kernel whose warps take runs, with as many thread blocks as can run at the same time.
// `shared_bytes`: dynamic shared memory of a block. `next`: queue by LaunchNext (kernels.cuh), so
// that the kernel may start early. Returns a code of the CUDA runtime, 0 for success.
template <class Kernel>
int QueueForRuns(const FixedArgs& args, const Runs& runs, cudaStream_t stream, Kernel kernel,
                 size_t shared_bytes, bool next) {
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes)) != cudaSuccess) {
    return Launched();
  }
  unsigned blocks = 1;
  if (const int error = ResidentBlocks(reinterpret_cast<const void*>(kernel),
                                       (runs.all + kThreads / kWarp - 1) / (kThreads / kWarp),
                                       &blocks, shared_bytes);
      error != 0) {
    return error;
  }
  const LaunchShape shape{blocks, kThreads, shared_bytes};
  if (next) return LaunchNext(kernel, shape, stream, args, runs);
  kernel<<<shape.blocks, shape.threads, shape.shared_bytes, stream>>>(args, runs);
  return Launched();
}

}  // namespace longhaul::codec::cuda
