// taco: 8-bit floating-point codes after a Hadamard transform, with one scale for each block (the
// TACO paper, Section 4, Algorithm 1). It is made for collectives inside a group of devices: blobs
// have a fixed size, encoding takes one pass, and there is no state. It works on links, too.
//
// A block is B consecutive elements of the flattened tensor. n elements make g = ceil(n / B)
// blocks; the last block is padded with zeros to B elements. Every section starts at a multiple of
// 16 bytes, and its end is zero-padded to such a multiple:
//
//   payload section  bytes   contents
//   scales           4 g     fp32 c of each block
//   codes            B g     one byte for each element, padding included
//
//   encoded bytes = 64 + Align16(4 g) + B g: 8 + 32 / B bits an element where B divides n
//
// A code is a number of E4M3 (no infinities, largest number Q = 448), of E5M2 (Q = 57344), or an
// integer in two's complement (Q = 127).
//
// The paper sends two numbers for each block, alpha = tau / sqrt(mean(x^2) + eps) and s = max|z| /
// Q with z = H(alpha x) / sqrt(B). It decodes x = H(q s) / (sqrt(B) alpha). H is linear, so the
// codes and the decoded x depend only on s / alpha, in which tau, eps and the mean cancel. Let
// y = H x. Then z / s is y Q / max|y|, and x = H(q) c with c = max|y| / (Q B). So taco sends only
// c. It needs no sum of squares, whose bits would depend on the order in which a device adds.
//
// Encoding a block, in fp32, each operation rounded once:
//  1. y = H x: for h = 1, 2, 4, ..., B / 2 every pair (y[i], y[i + h]) with i & h = 0 becomes
//     (sum, difference). Sums of floats do not underflow, so no element is too small for this.
//  2. If an element of y is not finite: y = H (x 2^-16). If an element is still not finite, x has a
//     NaN or an infinity: c is the NaN 0x7fc00000, the codes are 0, and the block is done.
//  3. M = max|y|. If M = 0, c is 0, and the codes are those of y, which is all +-0.
//  4. If 0 < M < 2^-100, y and M are multiplied by 2^64 (exactly), so that no scale is subnormal.
//  5. c = M times the fp32 number nearest to 1 / (Q B). If step 2 has scaled x, c is multiplied by
//     2^16. If step 4 has scaled y, c gets its sign bit set.
//  6. The codes are y (Q / M), each rounded to the nearest number of the format, ties to even, but
//     at most Q in magnitude.
//
// Decoding: v = H q; x = v |c|. If c has its sign bit set, x is also multiplied by 2^-64. Values
// outside the range of the output's dtype become its largest number. A block is all NaN if its c is
// not finite or if one of its codes is not a finite number. Encoders write no such codes.
//
// If x is multiplied by 2^k, c is too and the codes stay the same, unless numbers come near the
// limits of fp32.
//
//   parameters in the header   offset size
//   format: 1 e4m3, 2 e5m2, 3 int8  0    1
//   zero                            1    1
//   block B (32 to 512)             2    2
//   zero                            4   12
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "codec/blob.h"

namespace longhaul::codec::taco {

inline constexpr CodecId kId{9};
inline constexpr uint32_t kMinBlock = 32, kMaxBlock = 512;

enum class Format : uint8_t { kE4m3 = 1, kE5m2 = 2, kInt8 = 3 };
std::string_view ToString(Format format);

struct Params {
  Format format = Format::kE4m3;
  uint32_t block = 256;
  friend bool operator==(const Params&, const Params&) = default;
};

struct Layout {
  uint64_t blocks = 0;  // g
  // Offsets from the start of the payload. The scales begin at 0.
  uint64_t codes = 0, end = 0;
};
Layout MakeLayout(uint64_t elements, const Params& params);

// Returns the codec string: "taco:format=e4m3,block=256".
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params);
// Returns kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);
// Returns whether codec strings and headers may have these values.
bool Possible(const Params& params);
// Sets the parameter that codec strings call `key`. False, and *params unchanged, for an unknown
// key or a value out of range.
bool SetParameter(std::string_view key, std::string_view value, Params* params);

}  // namespace longhaul::codec::taco
