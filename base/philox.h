// Philox4x32, a counter-based random generator (Salmon et al., SC 2011): random access, no
// state, the same numbers on every machine. Used for parameter initialisation and for stochastic
// rounding. Random123 generates; codec/simd/noise-inl.h does the same for several blocks at a time.
#pragma once

#ifdef __CUDACC__
#define LONGHAUL_HOST_DEVICE __host__ __device__
#define R123_CUDA_DEVICE __host__ __device__  // Random123's own mark is for devices alone
#else
#define LONGHAUL_HOST_DEVICE
#endif

// Without Random123's generators on AES instructions, and without the compiler's 2 MB of headers for them, which every
// GPU source would read three times.
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

  // Uniform in [0, 1): the upper 24 bits, so that every value is an exact float.
  static constexpr float ToUnit(uint32_t bits) {
    return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
  }
};

}  // namespace longhaul
