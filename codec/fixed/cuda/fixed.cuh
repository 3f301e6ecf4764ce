// Shared by the kernels of fixed (codec/fixed/format.h). The host functions return a code of the
// CUDA runtime, 0 for success.
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/fixed/at_random.h"
#include "codec/fixed/cuda/kernels.h"

namespace longhaul::codec::cuda {

inline constexpr int kFixedTopExponent = 12;  // `top` of SampleExponent (scale.h)

__host__ __device__ inline uint64_t SampleTiles(const FixedArgs& args) {
  return uint64_t{args.tensor.tokens} * args.tiles_per_token.value;
}

// Queues a kernel that writes the blob's header and all zeros that encoders expect.
inline int BeginFixedEncoder(const FixedArgs& args, const FixedScratch& scratch,
                             cudaStream_t stream) {
  Beginning beginning{};
  beginning.header = args.header;
  beginning.blob_dev = args.blob_dev;
  beginning.scratch_dev = args.scratch_dev;
  beginning.scratch_bytes = scratch.zeroed;
  beginning.ranges[0] = {0, args.scales};
  beginning.ranges[1] = {args.codes - 16, args.codes};
  beginning.ranges[2] = {args.end - 16, args.end};
  return Begin(beginning, stream);
}

// Stochastic rounding to codes of `bits` bits, as format.h defines it.
class AtRandom {
 public:
  __device__ explicit AtRandom(uint32_t bits)
      : fraction_(fixed::FractionBits(bits)),
        origin_(fixed::RandomOrigin(bits)),
        limit_(static_cast<float>((1 << (bits - 1)) - 1) * Pow2(static_cast<int>(fraction_))) {}

  // Returns the factor 2^n / scale of a tile; 0 if the scale is 0.
  __device__ float Factor(float scale) const {
    return scale > 0 ? __frcp_rn(scale) * Pow2(static_cast<int>(fraction_)) : 0.0f;
  }
  // Returns the code q + 2^(bits - 1) of an element. `product`: the element times Factor().
  // `noise`: the element's random number (rounding.h).
  __device__ uint32_t Code(float product, uint32_t noise) const {
    const float w = fminf(fmaxf(product, -limit_), limit_);
    const float sum = __fadd_rn(w, __uint_as_float(origin_ + (noise >> (16 - fraction_))));
    return (__float_as_uint(sum) & fixed::kMantissa) >> fraction_;
  }

 private:
  uint32_t fraction_, origin_;
  float limit_;
};

// Queue the encoder and the decoder for bf16 tensors with HasWholeTiles (encode_whole.cu,
// decode_whole.cu). With stochastic rounding, the encoder also takes fp32.
int EncodeFixedWholeTiles(const FixedArgs& args, cudaStream_t stream);
int DecodeFixedWholeTiles(const FixedArgs& args, cudaStream_t stream);

}  // namespace longhaul::codec::cuda
