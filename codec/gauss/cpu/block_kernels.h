// Pointers to the functions that encode and decode one block (gauss/format.h), for the instruction
// set in use (codec/simd/targets.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/gauss/arithmetic.h"

namespace longhaul::codec::gauss::cpu {

// `values`: the `size` elements of the block, aligned to 64 bytes. `signs`: kSigns (arithmetic.h)
// as the sign bits of floats. `planes`: the block's codes, as bit planes.
struct BlockKernels {
  // Writes `planes`, and overwrites `values`. Returns the block's q. Returns kZeroIndex if all
  // elements are 0, and kNonfiniteIndex if one is not finite (arithmetic.h).
  int16_t (*encode)(const float* signs, size_t size, float* values, std::byte* planes);
  // Writes `values`. Only for blocks with a scale, whose scale byte is 1 to 254.
  void (*decode)(const std::byte* planes, const BlockScale& scale, const float* signs, size_t size,
                 float* values);
};

}  // namespace longhaul::codec::gauss::cpu
