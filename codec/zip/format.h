// zip: bf16 without loss. The elements of a trained tensor have few different exponents, so most
// exponents fit into 3 bits (the ZipCCL paper, Section 4).
//
// Elements of fp32 and fp16 are first rounded to bf16, to nearest even (convert.h). Decoding
// restores every bit of the bf16 elements, also of NaNs. A group is 1,024 consecutive elements; the
// last group may be shorter. A group is divided among 32 lanes, as on a GPU: element i of the group
// belongs to lane (i mod 256) / 8. Sections start at multiples of 16 bytes, and are zero-padded to
// such multiples. For n elements in g = ceil(n / 1024) groups:
//
//   payload section  bytes        contents
//   starts           4 (g + 1)    uint32 for each group: number of escapes of all groups before it.
//                                 At the end: number of all escapes
//   lows             g            the lowest exponent of each group's window
//   signs            n            sign (bit 7) and mantissa of each element
//   codes            3 x n / 8    three bit planes (bit i of byte k: element 8 k + i), the lowest
//                                 bit first; each plane is a section
//   escapes          e            exponents of the elements whose code is 0, ordered by group, then
//                                 by lane, then by element
//
// An element with code c, 1 to 7, has the exponent low + c - 1. An element with code 0 has its
// exponent among the escapes. All sections before the escapes are the *static part*; its size
// follows from the shape.
//
//   encoded bytes = 64 + static part + Align16(e), about 11.3 bits an element of a normal tensor
//
// If static part and escapes would not be smaller than 2 n bytes, the payload is the bf16 elements
// themselves. Decoders recognise such a payload by its size, 2 n bytes. So no blob has more than
// 64 + 2 n bytes.
//
// Each group has a window of 7 exponents, computed from its elements. Take the largest exponent in
// each lane (0 for a lane without elements). `top` is the largest exponent that at least 8 of the
// 32 lanes reach, and low = max(top - 6, 0). Of 32 normal numbers (a lane's) the largest is above 2
// sigma in 77 of 100 cases. So the window of a group of normal numbers begins at log2(sigma) - 5
// and covers 97.5 % of them, as the paper's Equation 5 does. Unlike a standard deviation, the
// window tolerates outliers, zeros and channels of other sizes, needs no earlier pass over the
// tensor, and is the same on every device.
//
// The header has no parameters: these bytes are zeros.
#pragma once

#include <cstdint>

#include "codec/blob.h"
#include "codec/zip/groups.h"

namespace longhaul::codec::zip {

inline constexpr CodecId kId{8};
// Offsets count from the start of the payload.
struct Layout {
  uint64_t groups = 0;                      // g
  uint64_t lows = 0, signs = 0, codes = 0;  // offsets; the starts are at 0
  uint64_t plane_bytes = 0;                 // size of a plane with its padding
  uint64_t escapes = 0;                     // offset: the end of the static part
  uint64_t raw = 0;                         // 2 n, the size of the elements as bf16
  // Maximum number of escapes of a payload that is smaller than `raw`. Set if `may_be_smaller`.
  uint64_t most_escapes = 0;
  bool may_be_smaller = false;  // the payload of n elements can be smaller than `raw`
};
Layout MakeLayout(uint64_t elements);

// Returns the size of a payload with this number of escapes.
uint64_t PayloadBytes(const Layout& layout, uint64_t escapes);

}  // namespace longhaul::codec::zip
