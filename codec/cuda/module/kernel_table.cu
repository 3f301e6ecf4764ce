#include <cuda_runtime_api.h>

#include "codec/cuda/kernel_table.h"
#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"

namespace longhaul::codec::cuda {
namespace {

__global__ void HeaderKernel(HeaderArgs header, uint64_t* out) {
  if (threadIdx.x < 8) out[threadIdx.x] = header.words[threadIdx.x];
}

}  // namespace

int WriteHeader(int device, const HeaderArgs* header, unsigned char* blob_dev, void* stream) {
  const cudaError_t error = cudaSetDevice(device);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return error;
  }
  HeaderKernel<<<1, kWarp, 0, static_cast<cudaStream_t>(stream)>>>(
      *header, reinterpret_cast<uint64_t*>(blob_dev));
  return Launched();
}

extern const KernelTable kKernelTable;
const KernelTable kKernelTable = {
    .write_header = WriteHeader,
    .encode_plain = EncodePlain,
    .decode_plain = DecodePlain,
    .encode_fixed = EncodeFixed,
    .decode_fixed = DecodeFixed,
};

}  // namespace longhaul::codec::cuda
