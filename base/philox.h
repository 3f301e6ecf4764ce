// Philox4x32-10, a counter-based random generator (Salmon et al., SC 2011): random access, no
// state, the same numbers on every machine. Used for parameter initialisation and for stochastic
// rounding.
#ifndef LONGHAUL_BASE_PHILOX_H_
#define LONGHAUL_BASE_PHILOX_H_

#include <array>
#include <cstdint>

namespace longhaul {

struct Philox {
  using Counter = std::array<uint32_t, 4>;
  using Key = std::array<uint32_t, 2>;

  static constexpr Counter Generate(Counter counter, Key key) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53} * counter[0];
      const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
      counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                 static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    return counter;
  }

  // Uniform in [0, 1): the upper 24 bits, so that every value is an exact float.
  static constexpr float ToUnit(uint32_t bits) {
    return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
  }
};

}  // namespace longhaul

#endif  // LONGHAUL_BASE_PHILOX_H_
