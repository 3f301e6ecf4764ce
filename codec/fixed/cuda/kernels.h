// Kernels of fixed, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

// Offsets count from the start of the payload, which follows the header.
struct FixedArgs {
  TensorArgs tensor;
  HeaderArgs header;
  uint32_t bits, tile, stochastic;
  uint32_t noise[4];  // RoundingNoise::block()
  Divisor tiles_per_token, tokens;
  uint64_t scales, codes, end;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: FixedScratch, aligned to 64 bytes
  uint32_t* fault_dev;         // decode: or-ed with 1 if a sample's exponent is out of range
};

// Memory that encoders keep between their phases: offsets in the workspace. Bytes before `zeroed`
// begin as zeros.
struct FixedScratch {
  constexpr FixedScratch(uint64_t samples, uint64_t tiles)
      : done(8),
        maxima(done + 8 * samples),
        zeroed(maxima + MaximaBytes(samples)),
        tile_maxima(zeroed),
        end(tile_maxima + 4 * tiles) {}
  uint64_t done;  // uint32, two a sample
  // Bits of the largest finite magnitude: MaximaBytes. The general encoder uses one uint32 a
  // sample.
  uint64_t maxima;
  uint64_t zeroed;
  // Bits of the largest magnitude, one number a tile of the tensor: uint16 for bf16, uint32 for
  // fp32.
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
