// Kernels of gauss, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct GaussArgs {
  TensorArgs tensor;
  HeaderArgs header;
  uint32_t bits, block;
  uint32_t last_block;  // elements of a token's last block
  // The tensor's blocks of `block` elements, and the last blocks of tokens if those are shorter.
  uint64_t whole_blocks, last_blocks;
  Divisor whole_of_token;  // whole blocks of a token; 1 if there are none
  Divisor blocks_of_token, tokens;
  uint64_t token_bytes;
  uint64_t scales, codes, end;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: GaussScratch, aligned to 64 bytes
  uint32_t* fault_dev;         // decode: or-ed with 1 if a sample's exponent is out of range
};

struct GaussScratch {
  constexpr GaussScratch(uint64_t samples, uint64_t blocks)
      : largest(0), zeroed(MaximaBytes(samples)), indexes(zeroed), end(indexes + 2 * blocks) {}
  // MaximaBytes: the largest q of a sample's blocks, with an offset; 0: no block has a scale.
  uint64_t largest;
  uint64_t zeroed;
  uint64_t indexes;  // int16, q of every block of the tensor
  uint64_t end;
};
inline uint64_t GaussScratchBytes(uint32_t samples, uint64_t blocks) {
  return (GaussScratch(samples, blocks).end + 63) / 64 * 64;
}

struct GaussKernels {
  static constexpr const char* kName = "gauss";
  int (*encode)(int device, const GaussArgs* args, void* stream);
  int (*decode)(int device, const GaussArgs* args, void* stream);
};
extern const GaussKernels kGaussKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
