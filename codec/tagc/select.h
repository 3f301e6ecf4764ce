// tagc sends only the largest gradients between data-parallel replicas. This file selects them:
// exactly `keep` elements, those with the largest magnitudes. Among equal magnitudes the earlier
// elements are selected. NaNs count as larger than all numbers. In a bitmap of elements, element k
// has bit k % 64 of word k / 64; bits behind the last element are zeros.
//
// Threads: pure functions. They cannot fail, and do not check arguments. Only FindThreshold and
// Select allocate, for a histogram of 16 KiB.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace longhaul::codec::tagc {

constexpr uint64_t BitmapWords(uint64_t elements) {
  return (elements + 63) / 64;
}
inline bool Has(std::span<const uint64_t> bitmap, uint64_t element) {
  return (bitmap[element / 64] >> element % 64 & 1) != 0;
}
inline uint64_t Count(std::span<const uint64_t> bitmap) {
  uint64_t count = 0;
  for (const uint64_t word : bitmap) count += static_cast<uint64_t>(std::popcount(word));
  return count;
}
// Calls `body(element)` for every element of the bitmap, in order.
template <class Body>
void ForEach(std::span<const uint64_t> bitmap, const Body& body) {
  for (uint64_t word = 0; word < bitmap.size(); ++word) {
    for (uint64_t rest = bitmap[word]; rest != 0; rest &= rest - 1) {
      body(word * 64 + static_cast<uint64_t>(std::countr_zero(rest)));
    }
  }
}

// The smallest magnitude that is selected, as bits of fp32, and how many of the `keep` selected
// elements have exactly this magnitude.
struct Threshold {
  uint32_t bits = 0;
  uint64_t equal = 0;
};
// Returns the threshold for `keep` elements. `keep` must be at least 1 and at most the number of
// values.
Threshold FindThreshold(std::span<const float> values, uint64_t keep);

// Overwrites `bitmap`, BitmapWords(values.size()) words, with the selected elements. `keep` must be
// at most the number of values.
void Select(std::span<const float> values, uint64_t keep, std::span<uint64_t> bitmap);

}  // namespace longhaul::codec::tagc
