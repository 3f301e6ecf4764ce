// Pointers to the functions of block-inl.h, for the instruction set in use (codec/simd/targets.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/gauss/arithmetic.h"
#include "codec/rounding.h"

namespace longhaul::codec::dither::cpu {

// Arguments: `values`: `size` elements, aligned to 64 bytes. `signs`: gauss::kSigns as sign bits.
// `numbers`: the elements' random numbers (rounding.h). `codes`: one byte for each element
// (arithmetic.h). `per_unit` and `unit`: kPerUnit and kUnit of Tables (tables.h).
struct BlockKernels {
  // Writes the `count` random numbers of the elements from `index` on. Both are multiples of
  // kMinBlock. `out`: aligned to 64 bytes, with room for the next multiple of 128 numbers.
  void (*fill_numbers)(const RoundingNoise& noise, uint64_t index, size_t count, uint16_t* out);
  // Writes `codes`, and overwrites `values`. Returns the block's q. Returns gauss::kZeroIndex if
  // all elements are 0, and gauss::kNonfiniteIndex if one is not finite.
  int16_t (*encode)(float per_unit, const float* signs, const uint16_t* numbers, size_t size,
                    float* values, uint8_t* codes);
  // Writes `count` codes that have only the outer bit, for DecodeGroup (rans.h).
  void (*outer_bits)(const uint16_t* numbers, size_t count, uint8_t* codes);
  // Writes `values`. Only for blocks with a scale.
  void (*decode)(float unit, const gauss::BlockScale& scale, const float* signs,
                 const uint8_t* codes, const uint16_t* numbers, size_t size, float* values);
};

}  // namespace longhaul::codec::dither::cpu
