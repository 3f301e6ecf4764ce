// The kernels of a block as the dispatcher of instruction sets hands them out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul::codec::taco::cpu {

// For blocks of one size and format. `values` are a block's elements, aligned to 64 bytes.
struct BlockKernels {
  // Returns c. Destroys nothing but `scratch`, as large as `values`.
  float (*encode)(const float* values, float* scratch, std::byte* codes);
  // To fp32, within its range.
  void (*decode)(const std::byte* codes, float c, float* values);
};

}  // namespace longhaul::codec::taco::cpu
