// sdp4bit: numbers of 4 bits with an fp32 step a group, as SDP4Bit sends gradients and differences
// of weights between replicas. A *section* is one row of n numbers, without a blob's header:
//
//   bytes                     contents
//   4 x ceil(n / group)       fp32 step of each group; NaN: the group has a NaN or an infinity
//   ceil(n / 2)               codes q + 8, two in a byte, the earlier one in the lower half
//   up to a multiple of 16    zeros
//
// Encoding a group, in fp32, each operation rounded once: step = max|x| / 7, u = x / step (0 where
// step is 0), q = floor(u + r) clamped to +-7, with r = 1/2 to nearest (a middle goes up) and
// RoundingNoise::Middle of the element's number to round stochastically. Decoding: q x step. Of 16
// codes 15 are used: 0 is never written, and is read as q = -8.
//
// Gradients are transformed first (kHadamard): each 32 consecutive numbers by the butterflies of
// codec/simd/hadamard-inl.h, not scaled; the last numbers are padded with zeros. The inverse is the
// same butterflies, times 2^-5. Sums are taken between the two.
#pragma once

#include <cstdint>

namespace longhaul::codec::sdp4bit {

// Groups of gradients (4.25 bits an element) and of differences of weights (4.016 bits).
inline constexpr uint32_t kGradientGroup = 128, kDifferenceGroup = 2048;
inline constexpr uint32_t kHadamard = 32;
inline constexpr int kTop = 7, kCodeOffset = 8;

constexpr uint64_t Groups(uint64_t count, uint32_t group) {
  return (count + group - 1) / group;
}
constexpr uint64_t CodesOffset(uint64_t count, uint32_t group) {
  return 4 * Groups(count, group);
}
constexpr uint64_t SectionBytes(uint64_t count, uint32_t group) {
  return (CodesOffset(count, group) + (count + 1) / 2 + 15) / 16 * 16;
}
// Returns the number of transformed numbers of `count` gradients.
constexpr uint64_t Transformed(uint64_t count) {
  return (count + kHadamard - 1) / kHadamard * kHadamard;
}

}  // namespace longhaul::codec::sdp4bit
