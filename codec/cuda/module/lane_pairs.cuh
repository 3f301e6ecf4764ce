// One stage of a Hadamard transform, within the numbers of one lane of a warp: every pair of
// numbers at distance kDistance becomes (sum, difference).
#pragma once

namespace longhaul::codec::cuda {

template <int kDistance, int kCount>
__device__ inline void PairsInLane(float (&values)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    if ((k & kDistance) == 0) {
      const float a = values[k];
      const float b = values[k + kDistance];
      values[k] = a + b;
      values[k + kDistance] = a - b;
    }
  }
}

}  // namespace longhaul::codec::cuda
