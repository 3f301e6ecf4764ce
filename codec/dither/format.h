// dither: an unbiased quantizer for gradients. Encoder and decoder know the same random number u
// for each element: the encoder adds u before it rounds, and the decoder subtracts u (subtractive
// dither). So the mean of the error is zero for every tensor. No value is clipped. The rounded
// values are entropy coded with rANS, in about `bits` bits for each element.
//
// The blocks are those of gauss (codec/gauss/format.h): B contiguous channels of one token. The
// last block of a token has the smallest power of two from 64 on that holds the remaining channels.
// A token has n blocks with P elements, padding included. A *group* is 64 consecutive blocks, which
// may belong to several tokens and samples; the last group has the remaining blocks. Groups are
// coded independently of each other. In a group, element i belongs to lane i mod 32. Every section
// starts at a multiple of 16 bytes and is zero-padded to such a multiple. With g groups:
//
//   payload section  bytes   contents
//   noise            16      a, b, c, d of codec/rounding.h, uint32 each, from the encoder's
//   context ends             8 g     uint64: number of words of this group and all earlier ones
//   exponents        2 g     int16 E of the group
//   states           128 g   uint32 x 32: the final rANS state of each lane
//   words            2 w     uint16: the words that the lanes put out, group by group, in the order
//                            of encoding
//
//   encoded bytes = 64 + 16 + Align16(8 g) + Align16(2 g) + 128 g + Align16(2 w)
//
// The *static part* is everything before the words. Its size follows from the shape.
//
// Encoding a block: steps 1 to 4 of gauss give the transformed values y, the exponent e, and r; the
// root of the sum of squares is about 2^(r/4). Then, in fp32, each operation rounded once:
//  5. t = y (2^(-r/4) kPerUnit): the value in units of 2^-16 of a quantizer step. The step is
//     2^(2.047 - bits) times the block's scale (tables.h). If the block has no scale, because all
//     elements are zero or one is not finite, t = 0.
//  6. k, from 0 to 65535, is the element's random number (codec/rounding.h). It depends on the
//     element's index, which counts all elements of the tensor, padding included. With
//     u = (2 k + 1) 2^-17 - 1/2, m = floor(t 2^-16 + u). This is computed as
//     floor((v - 1.5 2^23) 2^-16) with v = t + (1.5 2^23 - 2^15 + k), which fp32 rounds to an
//     integer.
//  7. E and the scale byte s of the block are those of step 6 of gauss, but E is one for each group
//     instead of one for each sample. So groups do not depend on each other.
//
// Decoding a block: R = (m + 1) 2^17 - (2 k + 1), an exact integer, is m + 1/2 - u in units of
// 2^-17 of a step. Then the transform again, and x = +-R (kUnit f1) f2 with the two factors f1 and
// f2 of gauss's decoder.
//
// rANS coding: the symbol of an element is -1 - m if u < 0, otherwise m. This is allowed because
// the distribution of (t, u) is symmetric. There are two tables of frequencies, each with the sum
// 4096: the first is used if |u| < 1/4, the second otherwise. A table has the symbols from -kReach
// to kReach - 1 (tables.h) and the escape. Any other symbol is coded as the escape and as the 7
// bits of symbol + 64, which have equal frequencies (32). Each coding step takes 32 elements, one
// for each lane. A lane with state x codes a symbol with frequency f, where c is the sum of the
// frequencies before it:
//    if x >= 2^20 f: the lane puts out the word x mod 2^16, and x becomes floor(x / 2^16);
//    x becomes floor(x / f) 2^12 + c + x mod f.
// In each coding step first all lanes with escapes code their 7 bits, in the order of lanes, then
// all lanes code their symbols. A lane's first state is 2^16 + s[2 lane] + 256 s[2 lane + 1]: so
// the states carry the scale bytes of the group's blocks (0 for missing blocks).
//
// The decoder goes back from the last coding step and reads the group's words from the end. At the
// end every x must be in [2^16, 2^17) and no words may be left; otherwise no encoder wrote this
// blob.
//
//   parameters in the header   offset size
//   twice `bits` (2, 3, 4, 6)       0    1
//   zero                            1    1
//   block B (64, 128, 256)          2    2
//   zero                            4   12
#pragma once

#include <cstdint>
#include <string>

#include "codec/blob.h"

namespace longhaul::codec::dither {

inline constexpr CodecId kId{11};
inline constexpr uint32_t kMinBlock = 64, kMaxBlock = 256;
inline constexpr uint32_t kGroupBlocks = 64, kLanes = 32;

struct Params {
  uint32_t half_bits = 4;  // `bits` in units of half a bit: 3 for bits=1.5
  uint32_t block = 128;
};

struct Layout {
  uint64_t token_blocks = 0;        // n
  uint32_t last_block = 0;          // elements of a token's last block, with padding
  uint64_t token_elements = 0;      // P
  uint64_t blocks = 0, groups = 0;  // of the whole tensor
  uint64_t group_words = 0;         // maximum number of words of a group
  // Offsets of sections in the payload. The noise is at offset 0.
  uint64_t ends = 0, exponents = 0, states = 0, words = 0;
};

// The shape must have passed CheckShape and have elements.
Layout MakeLayout(const Shape& shape, const Params& params);
// Returns the size in bytes of a payload with this number of words.
uint64_t PayloadBytes(const Layout& layout, uint64_t words);
// Returns the expected number of words for normally distributed values.
uint64_t UsualWords(const Shape& shape, const Params& params);

// Calls function.operator()<N>() with N = half_bits, which must be possible: for code with a table
// of its own for each value of `bits`.
template <class Function>
decltype(auto) ForHalfBits(uint32_t half_bits, Function&& function) {
  switch (half_bits) {
    case 2:
      return function.template operator()<2>();
    case 3:
      return function.template operator()<3>();
    case 4:
      return function.template operator()<4>();
    default:
      return function.template operator()<6>();
  }
}

// Returns "dither:bits=2,block=128".
std::string CodecString(const Params& params);
CodecParameters ToHeader(const Params& params);
// Returns kInvalidArgument for values that no encoder writes.
StatusOr<Params> FromHeader(const CodecParameters& parameters);
// Returns whether codec strings and headers may have these values.
bool Possible(const Params& params);

}  // namespace longhaul::codec::dither
