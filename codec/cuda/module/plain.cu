#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"

namespace longhaul::codec::cuda {
namespace {

// Moves bits where the formats agree, so that every NaN stays the NaN it is.
__device__ inline void Convert(const void* in, uint32_t from, void* out, uint32_t to,
                               uint64_t index) {
  if (from != to) {
    StoreElement(LoadElement(in, from, index), out, to, index);
  } else if (from == kF32) {
    static_cast<uint32_t*>(out)[index] = static_cast<const uint32_t*>(in)[index];
  } else {
    static_cast<uint16_t*>(out)[index] = static_cast<const uint16_t*>(in)[index];
  }
}

__device__ inline bool NotFinite(const void* data, uint32_t dtype, uint64_t index) {
  if (dtype == kF32) {
    return (static_cast<const uint32_t*>(data)[index] & kF32Infinity) == kF32Infinity;
  }
  const uint32_t exponent = dtype == kBf16 ? 0x7f80 : 0x7c00;
  return (static_cast<const uint16_t*>(data)[index] & exponent) == exponent;
}

__global__ void EncodeKernel(PlainArgs args, uint64_t elements) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  unsigned nonfinite = 0;
  for (uint64_t k = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < elements;
       k += stride) {
    nonfinite += NotFinite(args.tensor.data_dev, args.tensor.dtype, k) ? 1 : 0;
    Convert(args.tensor.data_dev, args.tensor.dtype, args.blob_dev + kHeaderBytes, args.wire_dtype,
            k);
  }
  if (nonfinite != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset), nonfinite);
  }
}

__global__ void DecodeKernel(PlainArgs args, uint64_t elements) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t k = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < elements;
       k += stride) {
    Convert(args.blob_dev + kHeaderBytes, args.wire_dtype, args.tensor.data_dev, args.tensor.dtype,
            k);
  }
}

uint64_t Elements(const TensorArgs& tensor) {
  return static_cast<uint64_t>(tensor.samples) * tensor.tokens * tensor.channels;
}

}  // namespace

int EncodePlain(int device, const PlainArgs* args, void* stream) {
  const int error = WriteHeader(device, &args->header, args->blob_dev, stream);
  if (error != 0) return error;
  const uint64_t elements = Elements(args->tensor);
  EncodeKernel<<<BlocksForWarps((elements + kWarp - 1) / kWarp), kThreads, 0,
                 static_cast<cudaStream_t>(stream)>>>(*args, elements);
  return Launched();
}

int DecodePlain(int device, const PlainArgs* args, void* stream) {
  const cudaError_t error = cudaSetDevice(device);
  if (error != cudaSuccess) return Launched();
  const uint64_t elements = Elements(args->tensor);
  DecodeKernel<<<BlocksForWarps((elements + kWarp - 1) / kWarp), kThreads, 0,
                 static_cast<cudaStream_t>(stream)>>>(*args, elements);
  return Launched();
}

}  // namespace longhaul::codec::cuda
