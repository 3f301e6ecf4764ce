// The arithmetic of device_check.h, the same on host and device. Every word of the result depends
// on the word's index, its old value and the seed.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LH_HOST_DEVICE __host__ __device__
#else
#define LH_HOST_DEVICE
#endif

namespace longhaul::cuda {

// A bijection of `word`.
LH_HOST_DEVICE constexpr uint32_t Scramble(uint32_t word, uint64_t index, uint32_t seed) {
  uint32_t x = word ^ seed ^ static_cast<uint32_t>(index) ^ static_cast<uint32_t>(index >> 32);
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

}  // namespace longhaul::cuda
