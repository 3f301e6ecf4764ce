// How a model's frozen matrices are stored in few bits, with the numbers and the bytes of
// bitsandbytes 0.50. All arithmetic is fp32, and each operation rounds once.
//
// NF4 (QLoRA). The elements of a matrix, row by row, are blocks of 64 (kNf4Block); the last block
// may be shorter. A block has an absmax, the largest magnitude in it. An element is stored as the
// index of the nearest of 16 levels (maps.h) to x / absmax. Absmax are quantized too (double
// quantization): the mean of all absmax is subtracted; then each group of 256 (kAbsmaxGroup) has an
// absmax of its own, and codes of 8 bits (maps.h). A stored matrix:
//
//   bytes                      contents
//   4                          fp32 mean of the blocks' absmax
//   4 x groups                 fp32 absmax of each group
//   blocks                     codes of the blocks' absmax
//   ceil(elements / 2)         levels, two in a byte, the earlier one in the upper half
//
// Decoding: absmax = map[code] * group's absmax + mean; x = level * absmax.
//
// INT8 (LLM.int8()). A row has an absmax, and an element is a signed byte, round(x * (1 / absmax
// * 127)), halves to even. x is rounded to fp16 before. A stored matrix:
//
//   bytes                      contents
//   4 x rows                   fp32 absmax of each row
//   rows x columns             int8 elements
//
// Decoding: x = (element * absmax) * (1 / 127).
//
// Each array begins at a multiple of 16 bytes, and the whole is a multiple of 16 bytes; padding has
// any contents. Decoded numbers are fp32, or rounded to the nearest bf16.
#pragma once

#include <cstdint>

namespace longhaul::codec::quantized {

inline constexpr uint64_t kNf4Block = 64, kAbsmaxGroup = 256;
inline constexpr float kInt8Step = 7.874015718698502e-3f;  // 1 / 127

constexpr uint64_t DividedUp(uint64_t count, uint64_t by) {
  return (count + by - 1) / by;
}
constexpr uint64_t Aligned(uint64_t bytes) {
  return DividedUp(bytes, 16) * 16;
}

// Numbers of blocks and groups, and byte offsets of arrays, of a matrix in NF4.
struct Nf4Layout {
  constexpr explicit Nf4Layout(uint64_t elements)
      : blocks(DividedUp(elements, kNf4Block)),
        groups(DividedUp(blocks, kAbsmaxGroup)),
        codes(Aligned(4 + 4 * groups)),
        levels(codes + Aligned(blocks)),
        bytes(levels + Aligned(DividedUp(elements, 2))) {}
  uint64_t blocks, groups;
  uint64_t codes, levels;
  uint64_t bytes;  // of the whole
};

// The same for INT8.
struct Int8Layout {
  constexpr Int8Layout(uint64_t rows, uint64_t columns)
      : elements(Aligned(4 * rows)), bytes(elements + Aligned(rows * columns)) {}
  uint64_t elements;
  uint64_t bytes;
};

}  // namespace longhaul::codec::quantized
