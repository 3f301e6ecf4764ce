// The arithmetic with which device_check.h tests a GPU. Host and device compute the same.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LH_HOST_DEVICE __host__ __device__
#else
#define LH_HOST_DEVICE
#endif

namespace longhaul::cuda {

// Mixes a word with its index and a seed. With the same index and seed, different words give
// different results.
LH_HOST_DEVICE constexpr uint32_t Scramble(uint32_t word, uint64_t index, uint32_t seed) {
  uint32_t x = word ^ seed ^ static_cast<uint32_t>(index) ^ static_cast<uint32_t>(index >> 32);
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

}  // namespace longhaul::cuda
