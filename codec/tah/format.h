// tah: TAH-Quant. Tiles of 3 or 4 bits an element, allotted by entropy, with a Hadamard transform
// for tiles with an outlier.
//
// A tile is G contiguous channels of one token, an allocation tile A channels (a multiple of G). C
// channels make t = ceil(C / G) tiles and a = ceil(t G / A) allocation tiles a token; the last tile
// is padded with zeros, the last allocation tile may have fewer tiles. An allocation tile never
// spans tokens: A above t G, and "alloc=token", mean one a token. T = S t and U = S a are the
// numbers a sample; n4 = floor((p U + 32768) / 65536) of the U, p in 1/65536, have 4 bits.
// Every section starts at a multiple of 16 bytes and is zero-padded to one. B samples:
//
//   payload section  bytes                  contents
//   exponents        2 B                    int16 c: the sample was multiplied by 2^c
//   scales           2 B T                  fp16, >= 0; sign bit: the tile was transformed;
//                                           exponent all ones: a tile with NaN or infinity
//   zeros            2 B T                  fp16; exponent all ones: as in scales, but no encoder
//                                           writes it
//   pivots           B x Align8(T g / 8)    g = log2(G) bits a tile, packed from the lowest bit of
//                                           each byte; 0 where not transformed
//   precision        B x Align8(U / 8)      bit u of a sample: allocation tile u has 4 bits
//   codes            B T x 3 G / 8          bit planes 0, 1, 2 of a tile (planes.h)
//   fourth bits      B n4 x A' / 8          plane 3 of the tiles of the allocation tiles with 4
//                                           bits, in their order; A' = min(A, t G); zeros where
//                                           such an allocation tile has fewer tiles
//
//   encoded bytes = 64 + the sum of Align16 of these: a function of the shape alone
//
// Encoding a sample, in fp32, each operation rounded once, in this order:
//  0. Its largest magnitude over the tiles without NaN and infinity goes to [2^12, 2^13) by 2^c
//     ([2^11, 2^12) if tau < 2: transformed values then grow more); c = 0 if there is none.
//  1. Entropy of an allocation tile, from x before step 0: y = |x| 2^(1-e), e the exponent of its
//     largest |x|; per tile the sums of y and of y log2(y) by folding halves (element k += element
//     k + G/2 for k < G/2, then G/4, ... 1); these sums over its tiles in their order give N and
//     L; H = log2(N) - L / N, 0 where N = 0, -infinity where an element is not finite. log2 is the
//     polynomial of cpu/entropy.h.
//  2. The n4 with the highest H, at equal H the lower index, get 4 bits.
//  3. v = x 2^c. a1, a2: the largest magnitude of the tile and the largest of the others; pivot:
//     the first position of a1. Transformed iff a1 > tau a2: v[0] and v[pivot] are swapped; for h =
//     1, 2, ..., G/2 every pair (v[i], v[i + h]) with bit h of i clear becomes (sum, difference);
//     then times 1/sqrt(G).
//  4. zero = fp16(min v), a -0 as +0 before it; scale = fp16((max v - min v) / (2^b - 1)), both to
//     nearest even; for stochastic rounding zero downwards, then scale = (max v - zero) / (2^b - 1)
//     upwards, so that nothing is clamped and the error has mean zero.
//  5. u = (v - zero) / scale (0 where scale is 0), clamped to [0, 2^b - 1]; the code is u rounded
//     to nearest even, or floor(u + r), at most 2^b - 1, with r of rounding.h.
// Decoding: v = code scale + zero (product, then sum); the transform (its own inverse), then the
// swap; x = v 2^-c.
//
//   parameters in the header   offset size
//   p in 1/65536 (0..65536)         0    4
//   A (0: a token)                  4    4
//   tau (fp32)                      8    4
//   G (32, 64, 128)                12    2
//   rounding (0 or 1)              14    1
//   zero                           15    1
#pragma once

#include <cstdint>
#include <string>

#include "codec/blob.h"
#include "codec/rounding.h"

namespace longhaul::codec::tah {

inline constexpr CodecId kId{5};
inline constexpr uint32_t kWholeToken = 0;
inline constexpr uint32_t kMaxAlloc = 1u << 20;
inline constexpr float kMaxTau = 1000;

struct Params {
  uint32_t p_65536 = 52429;  // 0.8
  uint32_t tile = 64;
  uint32_t alloc = 64;  // or kWholeToken
  float tau = 2;        // 0..kMaxTau, or infinity: never transform
  Rounding rounding = Rounding::kNearest;
};

struct Layout {
  // A token, a sample: tiles and allocation tiles; tiles of a whole allocation tile.
  uint64_t token_tiles = 0, token_allocs = 0;
  uint64_t tiles = 0, allocs = 0, fours = 0;
  uint64_t alloc_tiles = 0;
  uint32_t pivot_bits = 0;
  uint64_t plane_bytes = 0;                       // G / 8
  uint64_t pivot_bytes = 0, precision_bytes = 0;  // of a sample
  // From the start of the payload.
  uint64_t exponents = 0, scales = 0, zeros = 0, pivots = 0, precision = 0, codes = 0,
           fourth_bits = 0, end = 0;
};

// The shape has passed CheckShape and has elements.
Layout MakeLayout(const Shape& shape, const Params& params);
// Bytes of header and payload; 64 for an empty tensor.
uint64_t EncodedBytes(const Shape& shape, const Params& params);
// Returns the exponent of the scaled sample's largest magnitude: 12 or 11.
int TopExponent(const Params& params);

// "tah:p=0.8,tile=64,alloc=64,tau=2,rounding=nearest"
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params);
// kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);
// Whether codec strings and headers may have these values.
bool Possible(const Params& params);

}  // namespace longhaul::codec::tah
