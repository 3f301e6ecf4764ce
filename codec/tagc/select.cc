#include "codec/tagc/select.h"

#include <algorithm>
#include <vector>

namespace longhaul::codec::tagc {
namespace {

uint32_t Magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffff;
}

// Digits of a magnitude's 31 bits, the highest first: where they begin, and how many bits they
// have.
constexpr struct { uint32_t shift, bits; } kDigits[] = {{20, 11}, {10, 10}, {0, 10}};

}  // namespace

Threshold FindThreshold(std::span<const float> values, uint64_t keep) {
  std::vector<uint64_t> histogram;
  uint32_t prefix = 0;
  uint32_t known = 0;  // mask of the digits that are found
  for (const auto& digit : kDigits) {
    const uint32_t mask = (1u << digit.bits) - 1;
    histogram.assign(mask + 1, 0);
    for (const float value : values) {
      const uint32_t magnitude = Magnitude(value);
      histogram[magnitude >> digit.shift & mask] += (magnitude & known) == prefix ? 1 : 0;
    }
    uint32_t bin = mask;
    while (histogram[bin] < keep) keep -= histogram[bin--];
    prefix |= bin << digit.shift;
    known |= mask << digit.shift;
  }
  return {prefix, keep};
}

void Select(std::span<const float> values, uint64_t keep, std::span<uint64_t> bitmap) {
  std::fill(bitmap.begin(), bitmap.end(), 0);
  if (keep == 0) return;
  Threshold threshold = FindThreshold(values, keep);
  for (uint64_t k = 0; k < values.size(); ++k) {
    const uint32_t magnitude = Magnitude(values[k]);
    bool taken = magnitude > threshold.bits;
    if (magnitude == threshold.bits && threshold.equal > 0) {
      taken = true;
      --threshold.equal;
    }
    bitmap[k / 64] |= uint64_t{taken} << k % 64;
  }
}

}  // namespace longhaul::codec::tagc
