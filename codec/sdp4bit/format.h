// sdp4bit: numbers of 4 bits, with an fp32 step for each group of numbers. Data-parallel replicas
// send each other gradients and differences of weights in this form, by the method of the paper
// SDP4Bit. A *section* is the encoded form of n numbers, without a blob's header:
//
//   bytes                     contents
//   4 x ceil(n / group)       fp32 step of each group; NaN: the group has a NaN or an infinity
//   ceil(n / 2)               codes q + 8, two in a byte, the earlier one in the lower half
//   up to a multiple of 16    zeros
//
// Encoding a group, in fp32, each operation rounded once: step = max|x| / 7, u = x / step (0 where
// step is 0), q = floor(u + r) clamped to +-7. To round to nearest, r is 1/2, so that a u half-way
// between two integers goes up. To round stochastically, r is RoundingNoise::Middle of the
// element's random number. Decoding: x = q step. Encoders never write code 0; decoders read code 0
// as q = -8. In a group with a NaN or an infinity, all q are 0 and all decoded x are NaN.
//
// Gradients are transformed before they are encoded. Each 32 (kHadamard) consecutive numbers go
// through the butterflies of codec/simd/hadamard-inl.h, without a factor; the last ones are padded
// with zeros to 32. The inverse is the same butterflies, then a factor of 2^-5. The replicas'
// gradients are added up in their transformed form.
#pragma once

#include <cstdint>

namespace longhaul::codec::sdp4bit {

// Numbers in a group: for gradients (4.25 bits a number) and for differences of weights (4.016).
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
// Returns how many numbers the transform makes of `count` gradients, padding included.
constexpr uint64_t Transformed(uint64_t count) {
  return (count + kHadamard - 1) / kHadamard * kHadamard;
}

}  // namespace longhaul::codec::sdp4bit
