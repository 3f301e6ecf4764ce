// Kernels of gauss, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct GaussArgs {
  TensorArgs tensor;
  HeaderArgs header;     // encode
  uint32_t bits, block;  // Params
  uint32_t last_block;   // elements of a token's last block
  // Number of blocks of `block` elements in the tensor, and number of shorter blocks. Only the last
  // block of a token may be shorter.
  uint64_t whole_blocks, last_blocks;
  Divisor whole_of_token;  // blocks of `block` elements in a token; 1 if there are none
  Divisor blocks_of_token, tokens;
  // As in gauss::Layout.
  uint64_t token_bytes;
  uint64_t scales, codes, end;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: GaussScratch, aligned to 64 bytes
  // decode: or-ed with kFaultContents if a sample's exponent is out of range
  uint32_t* fault_dev;
};

// Byte offsets of arrays in the encoder's scratch memory. The encoder first zeroes the bytes before
// offset `zeroed`.
struct GaussScratch {
  constexpr GaussScratch(uint64_t samples, uint64_t blocks)
      : largest(0), zeroed(MaximaBytes(samples)), indexes(zeroed), end(indexes + 2 * blocks) {}
  // The largest q of each sample's blocks plus a constant, so that the sum is positive, spread over
  // MaximaBytes. 0: no block of the sample has a scale.
  uint64_t largest;
  uint64_t zeroed;
  uint64_t indexes;  // int16: q of every block of the tensor
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
