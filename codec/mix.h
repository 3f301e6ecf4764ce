// Spreads a difference in a few bits of a number over all its bits, on CPU and GPU alike. Stored
// data depends on its values: never change them.
#pragma once

#include <cstdint>

namespace longhaul::codec {

// SplitMix64's finalizer, of Steele, Lea and Flood.
constexpr uint64_t Mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace longhaul::codec
