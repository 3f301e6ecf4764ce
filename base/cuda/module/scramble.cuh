// The kernel of the device check.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace longhaul::cuda {

// words[k] = Scramble(words[k], k, seed) for k < count, on `stream`. `words_dev` may be null only
// with count 0.
cudaError_t LaunchScramble(uint32_t* words_dev, uint64_t count, uint32_t seed, cudaStream_t stream);

}  // namespace longhaul::cuda
