// Pointers to the functions that encode and decode one block, for the instruction set in use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::codec::taco::cpu {

// For blocks of one size and format. `values` are a block's elements, aligned to 64 bytes.
struct BlockKernels {
  // Writes the codes, and returns c. `scratch` is as large as `values` and aligned in the same way.
  float (*encode)(const float* values, float* scratch, std::byte* codes);
  // Decodes to fp32. Values outside the range of fp32 become its largest number.
  void (*decode)(const std::byte* codes, float c, float* values);
};

}  // namespace longhaul::codec::taco::cpu
