#include <algorithm>

#include "base/cuda/module/scramble.cuh"
#include "base/cuda/pattern.h"

namespace longhaul::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint64_t kMaximumBlocks = 4096;

__global__ void ScrambleKernel(uint32_t* words, uint64_t count, uint32_t seed) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t k = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < count;
       k += stride) {
    words[k] = Scramble(words[k], k, seed);
  }
}

}  // namespace

cudaError_t LaunchScramble(uint32_t* words_dev, uint64_t count, uint32_t seed,
                           cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const uint64_t blocks = std::min((count + kThreads - 1) / kThreads, kMaximumBlocks);
  ScrambleKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(words_dev, count, seed);
  return cudaGetLastError();
}

}  // namespace longhaul::cuda
