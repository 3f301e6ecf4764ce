// The entries of KernelTable (kernel_table.h).
#ifndef LONGHAUL_CODEC_CUDA_MODULE_KERNELS_CUH_
#define LONGHAUL_CODEC_CUDA_MODULE_KERNELS_CUH_

#include "codec/cuda/kernel_table.h"

namespace longhaul::codec::cuda {

int WriteHeader(int device, const HeaderArgs* header, unsigned char* blob_dev, void* stream);
int EncodePlain(int device, const PlainArgs* args, void* stream);
int DecodePlain(int device, const PlainArgs* args, void* stream);
int EncodeFixed(int device, const FixedArgs* args, void* stream);
int DecodeFixed(int device, const FixedArgs* args, void* stream);

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_MODULE_KERNELS_CUH_
