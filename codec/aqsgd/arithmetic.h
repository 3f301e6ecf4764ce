// Numbers and decisions of format.h. Plain types and arithmetic only: CPU and GPU kernels share
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/scale.h"

namespace longhaul::codec::aqsgd {

inline constexpr int kTile = 64;

enum class Kind : uint8_t { kTransient = 1, kStored = 2, kDifference = 3 };

inline constexpr uint64_t kNoSample = ~uint64_t{0};
inline constexpr size_t kRecordHeaderBytes = 16;
inline constexpr uint16_t kLargestHalfBits = 0x7bff;

// One side's state of a sample: its number and its record's checksum, 0 without a record.
struct Entry {
  uint64_t id = kNoSample;
  uint64_t check = 0;
};

// The largest finite magnitude of a whole sample or of a difference is scaled into [2^12, 2^13).
inline constexpr int kTopExponent = 12;
// Exponents of differences: |d| < 2^15 + 65504, and below 2^-28 a difference moves no fp16.
inline constexpr int kMinDifferenceExponent = -4, kMaxDifferenceExponent = 40;
inline constexpr int DifferenceExponent(uint32_t largest_bits) {
  const int exponent = SampleExponent(largest_bits, kTopExponent);
  return exponent < kMaxDifferenceExponent ? exponent : kMaxDifferenceExponent;
}

// A record suits samples whose largest magnitude times 2^c is 0 or lies in [2^4, 2^15).
inline constexpr int kLeastSuitable = 4, kFirstUnsuitable = 15;
inline constexpr bool Suits(int exponent, uint32_t largest_bits) {
  const int top = largest_bits == 0 ? kLeastSuitable : FloorLog2(largest_bits) + exponent;
  return top >= kLeastSuitable && top < kFirstUnsuitable;
}

// Returns the kind of a sample with the given largest finite magnitude. `exponent`: its record's c,
// if there is a record.
inline constexpr Kind KindOf(bool remembers, bool finite, bool has_record, int exponent,
                             uint32_t largest_bits) {
  if (!remembers || !finite) return Kind::kTransient;
  return has_record && Suits(exponent, largest_bits) ? Kind::kDifference : Kind::kStored;
}

// Whether a blob may contain a sample of this kind.
inline constexpr bool KindPossible(Kind kind, bool remembers, bool has_record) {
  if (kind == Kind::kDifference) return has_record;
  return kind == Kind::kTransient || (kind == Kind::kStored && remembers);
}
inline constexpr bool ExponentPossible(Kind kind, int exponent) {
  return kind == Kind::kDifference
             ? exponent >= kMinDifferenceExponent && exponent <= kMaxDifferenceExponent
             : exponent >= kMinExponent && exponent <= kMaxExponent;
}

}  // namespace longhaul::codec::aqsgd
