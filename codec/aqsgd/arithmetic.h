// Constants of format.h, and the choice of a sample's kind and exponents. Plain types and
// arithmetic only: CPU and GPU kernels share this file.
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

// What one side of a boundary knows of a sample: its number, and the checksum of its record. The
// checksum is 0 if there is no record.
struct Entry {
  uint64_t id = kNoSample;
  uint64_t check = 0;
};

// The largest finite magnitude of a whole sample or of a difference is scaled into [2^12, 2^13).
inline constexpr int kTopExponent = 12;
// The range of the exponents g of differences d. g is at least -4 because |d| < 2^15 + 65504. No
// more than 40 is needed, because a difference below 2^-28 changes no fp16 number.
inline constexpr int kMinDifferenceExponent = -4, kMaxDifferenceExponent = 40;
inline constexpr int DifferenceExponent(uint32_t largest_bits) {
  const int exponent = SampleExponent(largest_bits, kTopExponent);
  return exponent < kMaxDifferenceExponent ? exponent : kMaxDifferenceExponent;
}

// The limits of Suits, as exponents of 2.
inline constexpr int kLeastSuitable = 4, kFirstUnsuitable = 15;
// Returns whether a record with the exponent c suits a sample: the sample's largest magnitude times
// 2^c must be 0 or lie in [2^4, 2^15).
inline constexpr bool Suits(int exponent, uint32_t largest_bits) {
  const int top = largest_bits == 0 ? kLeastSuitable : FloorLog2(largest_bits) + exponent;
  return top >= kLeastSuitable && top < kFirstUnsuitable;
}

// Returns the kind of a sample. `remembers`: the sample has an id. `finite`: the sample has no NaN
// and no infinity. `exponent`: c of the record, unused if there is none. `largest_bits`: the
// largest finite magnitude of the sample, as bits of fp32.
inline constexpr Kind KindOf(bool remembers, bool finite, bool has_record, int exponent,
                             uint32_t largest_bits) {
  if (!remembers || !finite) return Kind::kTransient;
  return has_record && Suits(exponent, largest_bits) ? Kind::kDifference : Kind::kStored;
}

// Return whether a valid blob may have a sample of this kind, and whether a sample of this kind may
// have this exponent.
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
