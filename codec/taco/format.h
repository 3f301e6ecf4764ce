// taco: 8-bit floating-point codes after a Hadamard transform, with one scale a block (TACO,
// Section 4, Algorithm 1). Made for collectives inside a group of devices: fixed size, one pass,
// and without state; on links it works as any other codec.
//
// A block is B elements in a row of the flattened tensor. n elements make g = ceil(n / B) blocks;
// the last one is padded with zeros to B. Sections start at multiples of 16 bytes and are
// zero-padded to them:
//
//   payload section  bytes   contents
//   scales           4 g     fp32 c of each block
//   codes            B g     a byte an element, padding included
//
//   encoded bytes = 64 + Align16(4 g) + B g: 8 + 32 / B bits an element where B divides n
//
// A code is an E4M3 (no infinities, largest number Q = 448), an E5M2 (Q = 57344) or an integer in
// two's complement (Q = 127).
//
// The paper sends two numbers a block, alpha = tau / sqrt(mean(x^2) + eps) and s = max|z| / Q with
// z = H(alpha x) / sqrt(B), and decodes x = H(q s) / (sqrt(B) alpha). H is linear, so both results
// depend on s / alpha alone, in which tau, eps and the mean cancel: with y = H x, z / s is
// y Q / max|y| and x = H(q) c with c = max|y| / (Q B). So no sum of squares is needed, and what is
// computed does not depend on the order in which a device would add it up.
//
// Encoding a block, in fp32, each operation rounded once:
//  1. y = H x: for h = 1, 2, ..., B / 2 every pair (y[i], y[i + h]) with bit h of i clear becomes
//     (sum, difference). Sums of floats do not underflow, so no element is too small for this.
//  2. Where an element of y is not finite: y = H (x 2^-16). If that has one too, the block has a
//     NaN or an infinity: c is the NaN 0x7fc00000, the codes are 0.
//  3. M = max|y|. M = 0: c = 0, and the codes are those of 0 y.
//  4. M < 2^-100: y and M are multiplied by 2^64 (exact), so that no scale below is subnormal.
//  5. c = M times the fp32 nearest to 1 / (Q B); times 2^16 after step 2; with its sign bit set
//     after step 4.
//  6. Codes: y (Q / M) rounded to the nearest number of the format, ties to even; above Q it is Q.
//
// Decoding: v = H q; x = v |c|, and where c has its sign bit set, that times 2^-64. What lies
// outside of the output's range becomes its largest number. A block whose c is not finite, or with
// a code that is no finite number (an encoder writes none), is NaN.
//
// A factor 2^k of x is one of c, and codes stay, as long as neither end of fp32 is near.
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
  // From the start of the payload; the scales come first.
  uint64_t codes = 0, end = 0;
};
Layout MakeLayout(uint64_t elements, const Params& params);

// "taco:format=e4m3,block=256"
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params);
// kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);
// Whether codec strings and headers may have these values.
bool Possible(const Params& params);

}  // namespace longhaul::codec::taco
