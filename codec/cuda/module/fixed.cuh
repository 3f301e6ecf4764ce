// What the kernels of fixed share.
#ifndef LONGHAUL_CODEC_CUDA_MODULE_FIXED_CUH_
#define LONGHAUL_CODEC_CUDA_MODULE_FIXED_CUH_

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"

namespace longhaul::codec::cuda {

inline constexpr int kFixedTopExponent = 12;

__host__ __device__ inline uint64_t SampleTiles(const FixedArgs& args) {
  return uint64_t{args.tensor.tokens} * args.tiles_per_token.value;
}

// Queues the zeros and the header that encoders write into.
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

// For tensors that HasWholeTiles (fixed_whole.cu); the encoder rounds to nearest.
int EncodeFixedWholeTiles(const FixedArgs& args, cudaStream_t stream);
int DecodeFixedWholeTiles(const FixedArgs& args, cudaStream_t stream);

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_MODULE_FIXED_CUH_
