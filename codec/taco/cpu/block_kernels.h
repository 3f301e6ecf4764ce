// The kernels of a block, as returned by the dispatcher of instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::codec::taco::cpu {

// For blocks of one size and format. `values` are a block's elements, aligned to 64 bytes.
struct BlockKernels {
  // Returns c. Overwrites only `scratch`, which is as large as `values`.
  float (*encode)(const float* values, float* scratch, std::byte* codes);
  // Decodes to fp32, clamped to its range.
  void (*decode)(const std::byte* codes, float c, float* values);
};

}  // namespace longhaul::codec::taco::cpu
