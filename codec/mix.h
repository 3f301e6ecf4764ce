// A hash of 64-bit numbers, the same on CPU and GPU: a change of a few bits of the input changes
// about half of the output's bits. Stored data depends on the results: never change the function.
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
