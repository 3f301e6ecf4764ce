// Kernels of fixed, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

// Offsets count from the start of the payload, which follows the header.
struct FixedArgs {
  TensorArgs tensor;
  HeaderArgs header;                // encode
  uint32_t bits, tile, stochastic;  // Params; stochastic is 1, or 0 to round to nearest
  uint32_t noise[4];                // RoundingNoise::block()
  Divisor tiles_per_token, tokens;
  uint64_t scales, codes, end;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: FixedScratch, aligned to 64 bytes
  // decode: or-ed with kFaultContents if a sample's exponent is out of range
  uint32_t* fault_dev;
};

// Byte offsets in the encoder's scratch memory, where the phases of the encoder leave numbers for
// later phases. The encoder first zeroes the bytes before offset `zeroed`. The first 8 bytes count
// the work items that thread blocks have taken.
struct FixedScratch {
  constexpr FixedScratch(uint64_t samples, uint64_t tiles)
      : done(8),
        maxima(done + 8 * samples),
        zeroed(maxima + MaximaBytes(samples)),
        tile_maxima(zeroed),
        end(tile_maxima + 4 * tiles) {}
  uint64_t done;  // two uint32 for each sample: work items done in phase 0 and in phase 1
  // Bits of the largest magnitude in each sample's finite tiles, spread over MaximaBytes. The
  // general encoder, for any shape and dtype, uses only one uint32 for each sample.
  uint64_t maxima;
  uint64_t zeroed;
  // Bits of the largest magnitude of each tile of the tensor: uint16 for bf16, uint32 for fp32.
  uint64_t tile_maxima;
  uint64_t end;
};
inline uint64_t FixedScratchBytes(uint32_t samples, uint64_t tiles) {
  return (FixedScratch(samples, tiles).end + 63) / 64 * 64;
}

struct FixedKernels {
  static constexpr const char* kName = "fixed";
  int (*encode)(int device, const FixedArgs* args, void* stream);
  int (*decode)(int device, const FixedArgs* args, void* stream);
};
extern const FixedKernels kFixedKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
