// The entries of KernelTable (kernel_table.h), and how encoders begin.
#ifndef LONGHAUL_CODEC_CUDA_MODULE_KERNELS_CUH_
#define LONGHAUL_CODEC_CUDA_MODULE_KERNELS_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "codec/cuda/kernel_table.h"

namespace longhaul::codec::cuda {

int WriteHeader(int device, const HeaderArgs* header, unsigned char* blob_dev, void* stream);
int EncodePlain(int device, const PlainArgs* args, void* stream);
int DecodePlain(int device, const PlainArgs* args, void* stream);
int EncodeFixed(int device, const FixedArgs* args, void* stream);
int DecodeFixed(int device, const FixedArgs* args, void* stream);
int EncodeTah(int device, const TahArgs* args, void* stream);
int DecodeTah(int device, const TahArgs* args, void* stream);
int EncodeGauss(int device, const GaussArgs* args, void* stream);
int DecodeGauss(int device, const GaussArgs* args, void* stream);
int EncodeAqsgd(int device, const AqsgdArgs* args, void* stream);
int DecodeAqsgd(int device, const AqsgdArgs* args, void* stream);

// What is written before the rest: the header, the zeros of the payload (paddings, sections that
// are or-ed into), the zeros of the scratch memory.
struct Beginning {
  static constexpr int kRanges = 8;
  HeaderArgs header;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;
  uint64_t scratch_bytes;
  struct Range {
    uint64_t first, end;  // in the payload; unused ones are empty
  } ranges[kRanges];
};
// Queues it on a stream of the current device.
int Begin(const Beginning& beginning, cudaStream_t stream);

// Blocks of kThreads of this kernel that the current device runs at once, at most `most`;
// `shared_bytes` that a launch adds.
int ResidentBlocks(const void* kernel, uint64_t most, unsigned* blocks, size_t shared_bytes = 0);

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_MODULE_KERNELS_CUH_
