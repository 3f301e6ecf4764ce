// tah: TAH-Quant. Each tile has 3 or 4 bits for each element; tiles with high entropies get 4.
// Tiles with an outlier go through a Hadamard transform.
//
// A tile is G contiguous channels of one token. An allocation tile is A channels, a multiple of G,
// with the same number of bits in all its tiles. C channels make t = ceil(C / G) tiles and
// a = ceil(t G / A) allocation tiles for each token. The last tile of a token is padded with zeros;
// the last allocation tile may have fewer tiles. An allocation tile never spans tokens: with A
// above t G, or "alloc=token", each token is one allocation tile. A sample of S tokens has T = S t
// tiles and U = S a allocation tiles. Of these, n4 = floor((p U + 32768) / 65536) have 4 bits,
// where p is the parameter p in units of 1/65536. Every section starts at a multiple of 16 bytes,
// and its end is zero-padded to such a multiple. With B samples:
//
//   payload section  bytes                  contents
//   exponents        2 B                    int16 c: the sample was multiplied by 2^c
//   scales           2 B T                  fp16, >= 0; sign bit: the tile was transformed;
//                                           exponent all ones: a tile with NaN or infinity
//   zeros            2 B T                  fp16. Exponent all ones means the same as in scales;
//                                           no encoder writes it
//   pivots           B x Align8(T g / 8)    g = log2(G) bits for each tile, packed from the lowest
//                                           bit of each byte; 0 if the tile was not transformed
//   precision        B x Align8(U / 8)      bit u of a sample: allocation tile u has 4 bits
//   codes            B T x 3 G / 8          bit planes 0, 1, 2 of each tile (planes.h)
//   fourth bits      B n4 x A' / 8          plane 3 of the tiles in the allocation tiles with 4
//                                           bits, in their order; A' = min(A, t G). If such an
//                                           allocation tile has fewer tiles, the rest is zeros
//
//   encoded bytes = 64 + the sum of Align16 of these sizes. They depend on the shape alone.
//
// Encoding a sample, in fp32, each operation rounded once, in this order:
//  0. Take the sample's largest magnitude over the tiles without NaN and infinity. c brings it into
//     [2^12, 2^13), or into [2^11, 2^12) if tau < 2, because transformed values then grow more. If
//     the magnitude is 0, c = 0.
//  1. The entropy H of each allocation tile, from x before step 0: y = |x| 2^(1-e), e the exponent
//     of its largest |x|. In each tile, y and y log2(y) are summed by folding halves (element k
//     += element k + G/2 for k < G/2, then G/4, ... 1). The sums of the tiles, added in their
//     order, give N and L. H = log2(N) - L / N; 0 if N = 0; -infinity if an element is not finite.
//     log2 is the polynomial of cpu/entropy.h.
//  2. The n4 allocation tiles with the highest H get 4 bits; at equal H, the lower index.
//  3. v = x 2^c. a1 is the largest magnitude of the tile, a2 the largest one of the other elements,
//     pivot the first position of a1. If a1 > tau a2, the tile is transformed: v[0] and v[pivot]
//     are swapped; for h = 1, 2, 4, ..., G/2 every pair (v[i], v[i + h]) with i & h = 0 becomes
//     (sum, difference); then all v are multiplied by 1/sqrt(G).
//  4. To nearest: zero = fp16(min v), after a -0 has become +0; scale = fp16((max v - min v) /
//     (2^b - 1)), both rounded to nearest even. Stochastic: zero is rounded downwards, then scale =
//     (max v - zero) / (2^b - 1) upwards, so that nothing is clamped and the mean error is 0.
//  5. u = (v - zero) / scale (0 where scale is 0), clamped to [0, 2^b - 1]. To nearest, the code is
//     u rounded to nearest even. Stochastic, it is floor(u + r) with r of rounding.h, but at most
//     2^b - 1.
// Decoding: v = code scale + zero, the product rounded before the sum. If the tile was transformed,
// v goes through the transform again, which is its own inverse, and then the swap. x = v 2^-c.
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
  uint32_t alloc = 64;  // A, or kWholeToken
  float tau = 2;        // 0..kMaxTau; infinity: no tile is transformed
  Rounding rounding = Rounding::kNearest;
};

struct Layout {
  uint64_t token_tiles = 0, token_allocs = 0;     // tiles and allocation tiles of a token: t, a
  uint64_t tiles = 0, allocs = 0, fours = 0;      // of a sample: T, U, n4
  uint64_t alloc_tiles = 0;                       // tiles of a whole allocation tile
  uint32_t pivot_bits = 0;                        // g
  uint64_t plane_bytes = 0;                       // G / 8
  uint64_t pivot_bytes = 0, precision_bytes = 0;  // of a sample
  // Offsets from the start of the payload.
  uint64_t exponents = 0, scales = 0, zeros = 0, pivots = 0, precision = 0, codes = 0,
           fourth_bits = 0, end = 0;
};

// The shape must have passed CheckShape and have elements.
Layout MakeLayout(const Shape& shape, const Params& params);
// Returns the size of header and payload in bytes; 64 for an empty tensor.
uint64_t EncodedBytes(const Shape& shape, const Params& params);
// Returns the exponent to which step 0 brings a sample's largest magnitude: 12 or 11.
int TopExponent(const Params& params);

// Returns the codec string: "tah:p=0.8,tile=64,alloc=64,tau=2,rounding=nearest".
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params);
// Returns kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);
// Returns whether codec strings and headers may have these values.
bool Possible(const Params& params);

}  // namespace longhaul::codec::tah
