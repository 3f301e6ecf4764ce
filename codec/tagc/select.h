// Selects the gradients to send: exactly the `keep` with the largest magnitudes, the earlier one
// among equal ones. Bitmaps have bit k % 64 of word k / 64 for element k, and zeros behind the last
// element.
//
// Threads: pure functions. No function throws; only Select allocates, for its histogram.
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

// The `keep`-th largest magnitude as bits of fp32, and the number of kept elements with exactly
// these bits. `keep` is from 1 to the number of values. NaNs are larger than all numbers.
struct Threshold {
  uint32_t bits = 0;
  uint64_t equal = 0;
};
Threshold FindThreshold(std::span<const float> values, uint64_t keep);

// Sets the bits of `bitmap`, BitmapWords(values.size()) words of any contents. 0 <= keep <= size.
void Select(std::span<const float> values, uint64_t keep, std::span<uint64_t> bitmap);

}  // namespace longhaul::codec::tagc
