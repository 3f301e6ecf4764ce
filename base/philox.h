// Philox4x32, a counter-based random generator (Salmon et al., SC 2011): random access, no state,
// the same numbers on every machine. Used for parameter initialization and for stochastic rounding.
// Random123 computes the numbers; codec/simd/noise-inl.h computes the same ones for several blocks
// at a time.
#pragma once

#ifdef __CUDACC__
#define LONGHAUL_HOST_DEVICE __host__ __device__
#define R123_CUDA_DEVICE __host__ __device__  // Random123's own mark is for devices alone
#else
#define LONGHAUL_HOST_DEVICE
#endif

// Leaves out Random123's generators on AES instructions. They include 2 MB of the compiler's
// headers, which every GPU source would read three times.
#define R123_USE_SSE 0
#include <Random123/philox.h>

#include <array>
#include <cstdint>

namespace longhaul {

struct Philox {
  using Counter = std::array<uint32_t, 4>;
  using Key = std::array<uint32_t, 2>;

  // Ten rounds are the generator's default. Seven pass BigCrush too (the paper's table 2).
  template <unsigned kRounds = 10>
  LONGHAUL_HOST_DEVICE static Counter Generate(const Counter& counter, const Key& key) {
    const philox4x32_ctr_t words = philox4x32_R(
        kRounds, {{counter[0], counter[1], counter[2], counter[3]}}, {{key[0], key[1]}});
    return {words.v[0], words.v[1], words.v[2], words.v[3]};
  }

  // Converts the upper 24 bits to a number in [0, 1). Every result is exact in fp32.
  static constexpr float ToUnit(uint32_t bits) {
    return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
  }
};

}  // namespace longhaul
