// gauss: a Hadamard transform makes the values of a block about normal. The best quantizer of
// normal values is known in advance.
//
// A block is B contiguous channels of one token. C channels make n = ceil(C / B) blocks for each
// token. The last block has the smallest size of 64, 128, ... B that holds the remaining channels,
// and is zero-padded to this size. P is the sum of the sizes of a token's blocks: C = 1600 and
// B = 128 make 12 blocks of 128 and one of 64. Every section starts at a multiple of 16 bytes, and
// its end is zero-padded to such a multiple. With N samples of S tokens:
//
//   payload section  bytes             contents
//   exponents        2 N               int16 E of the sample
//   scales           N S n             one byte s for each block: the block's scale is
//                                      2^(E + (s - 251) / 4). 0: all elements are zero. 255: an
//                                      element is NaN or infinite
//   codes            N S P b / 8       b bit planes for each block (planes.h). 0 if all elements
//                                      of the block are zero, or one is NaN or infinite
//
//   encoded bytes = 64 + Align16(2 N) + Align16(N S n) + Align16(N S P b / 8)
//   about b + 8 / B bits for each element if B divides C
//
// Encoding a block of G elements, g = log2(G), in fp32, each operation rounded once:
//  1. y = +-x 2^(1-e), e the exponent of the block's largest |x|, so that the largest |y| is in
//     [2, 4). The signs are a fixed pattern (arithmetic.h). Without these signs the transform would
//     gather the mean of a block's elements in one value, which is too large for the quantizer.
//  2. M = the sum of y y, by folding halves (element k += element k + G/2 for k < G/2, then
//     G/4, ... 1). M is the mean square of the values after step 3, which are sqrt(G) times an
//     orthonormal transform of y.
//  3. For h = 1, 2, ..., G/2 every pair (y[i], y[i + h]) with i & h = 0 becomes (sum,
//     difference): sqrt(G) times the Sylvester-Hadamard transform.
//  4. r = 2 log2(M) rounded to the nearest integer, so that 2^(r/4) is sqrt(M) on a grid of quarter
//     octaves. It follows from M's exponent and from M's significand, compared with 2^(1/4) and
//     2^(3/4) (arithmetic.h).
//  5. u = y 2^(-r/4): about standard normal. Code: the bits of j, the number of thresholds that are
//     <= |u|, below u's sign bit (1: negative). The thresholds lie half-way between the levels of
//     levels.h: (L[j] + L[j + 1]) 0.5.
//  6. The block's rms is 2^(q/4), q = 4 (e - 1) + r - 2 g.
// E = floor(Q / 4), Q the largest q of the sample's blocks that are finite and not zero (0 if there
// is none), and s = q - 4 E + 251, so that the largest s is 251 to 254. A block with s < 1 lies
// more than 62 octaves below the sample's largest block: it gets s = 0 and decodes to zeros. Its
// codes keep the bits of step 5, and decoders ignore them. Steps 1 to 5 do not need E, so the
// encoder reads the sample once. It keeps each block's q in scratch memory until E is known.
//
// Decoding: u = the level of the code; step 3 again; x = +-(u F) 2^t with the signs of step 1,
// where d = 4 E + s - 251 - 2 g, p = floor(d / 4), t = p / 2 rounded towards zero, and F = 2^((d
// mod 4) / 4) 2^(p - t), rounded to fp32. A factor 2^k of x adds 4 k to q and k to E:
// decode(encode(2^k x)) is 2^k decode(encode(x)).
//
//   parameters in the header   offset size
//   bits b (2..6)                   0    1
//   coding of the codes             1    1   0: as above. Others are reserved for entropy coding,
//                                            with the payload's size in the blob's header
//   block B (64, 128, 256, 512)     2    2
//   zero                            4   12
#pragma once

#include <cstdint>
#include <string>

#include "codec/blob.h"

namespace longhaul::codec::gauss {

inline constexpr CodecId kId{6};
inline constexpr uint32_t kMinBits = 2, kMaxBits = 6;
inline constexpr uint32_t kMinBlock = 64, kMaxBlock = 512;

struct Params {
  uint32_t bits = 4;
  uint32_t block = 128;
};

struct Layout {
  uint64_t token_blocks = 0;  // n
  uint32_t last_block = 0;    // elements of a token's last block, with padding
  uint64_t token_bytes = 0;   // bytes of a token's codes
  uint64_t block_bytes = 0;   // bytes of the codes of a block of full size
  uint64_t blocks = 0;        // number of a sample's blocks
  // Offsets from the start of the payload.
  uint64_t exponents = 0, scales = 0, codes = 0, end = 0;
};

// The shape must have passed CheckShape and have elements.
Layout MakeLayout(const Shape& shape, const Params& params);
// Returns the size of header and payload in bytes; 64 for an empty tensor.
uint64_t EncodedBytes(const Shape& shape, const Params& params);

// Returns the codec string: "gauss:bits=4,block=128".
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params);
// Returns kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);
// Returns whether codec strings and headers may have these values.
bool Possible(const Params& params);

}  // namespace longhaul::codec::gauss
