// zip: bf16 without loss. Exponents of trained tensors are few, so most of them fit into 3 bits
// (ZipCCL, Section 4).
//
// Elements that are not bf16 are rounded to bf16, to nearest even (convert.h); decoding then
// restores every bit, also of NaNs. A group is 1,024 consecutive elements; the last group may be
// shorter. 32 lanes handle a group; element i of a group belongs to lane (i mod 256) / 8. Sections
// start at multiples of 16 bytes and are zero-padded to them. n elements in g = ceil(n / 1024)
// groups:
//
//   payload section  bytes        contents
//   starts           4 (g + 1)    uint32: escapes of all groups before; the last one: all escapes
//   lows             g            the lowest exponent of each group's window
//   signs            n            sign (bit 7) and mantissa of each element
//   codes            3 x n / 8    three bit planes (bit i of byte k: element 8 k + i), the lowest
//                                 bit first; each is a section
//   escapes          e            exponents of the elements whose code is 0: by group, in it by
//                                 lane, of a lane by element
//
// Code c of 1 to 7: the exponent is low + c - 1. Code 0: it is among the escapes. All before the
// escapes is the *static part*, whose size the shape gives.
//
//   encoded bytes = 64 + static part + Align16(e), about 11.3 bits an element of a normal tensor
//
// If static part and escapes would not be smaller than 2 n bytes, the payload is the elements
// themselves: 2 n bytes, by which a decoder recognises them. So no blob is larger than 64 + 2 n.
//
// Each group has its own window, computed from its elements: a lane has its largest exponent (0 if
// it has no elements), `top` is the largest exponent that at least 8 of the 32 lanes reach, low =
// max(top - 6, 0). Among 32 normal numbers the largest is above 2 sigma in 77 of 100 cases, so the
// window of a normal group begins at log2(sigma) - 5, which covers 97.5 %, as the paper's Equation
// 5 does. Unlike a standard deviation, the window tolerates outliers, zeros and channels of other
// sizes, needs no earlier pass over the tensor, and is the same on every device.
//
// Parameters in the header: none (zeros).
#pragma once

#include <cstdint>

#include "codec/blob.h"
#include "codec/zip/groups.h"

namespace longhaul::codec::zip {

inline constexpr CodecId kId{8};
// Offsets from the start of the payload of n elements.
struct Layout {
  uint64_t groups = 0;
  uint64_t lows = 0, signs = 0, codes = 0;  // the starts come first
  uint64_t plane_bytes = 0;                 // from one plane to the next
  uint64_t escapes = 0;                     // the end of the static part
  uint64_t raw = 0;                         // bytes of the elements
  // Maximum number of escapes with which the payload is smaller than `raw`, if there is any.
  uint64_t most_escapes = 0;
  bool may_be_smaller = false;
};
Layout MakeLayout(uint64_t elements);

// Returns the size of a payload with this number of escapes.
uint64_t PayloadBytes(const Layout& layout, uint64_t escapes);

}  // namespace longhaul::codec::zip
