// Pointers to the functions that encode and decode one block (taco/format.h), for the instruction
// set in use (codec/simd/targets.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::codec::taco::cpu {

// The functions for blocks of one size and format. `values` are a block's elements, aligned to 64
// bytes. c is the block's scale of format.h.
struct BlockKernels {
  // Writes the codes, and returns c, which is NaN if the block has a NaN or an infinity. `scratch`
  // is as large as `values`, and also aligned to 64 bytes.
  float (*encode)(const float* values, float* scratch, std::byte* codes);
  // Decodes to fp32. Values outside the range of fp32 become its largest number with their sign.
  void (*decode)(const std::byte* codes, float c, float* values);
};

}  // namespace longhaul::codec::taco::cpu
