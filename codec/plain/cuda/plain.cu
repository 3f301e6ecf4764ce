#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/eights.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/plain/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

// Calls function(first element, how many) for all elements, kAtATime at a time.
template <class Function>
__device__ inline void ForElements(uint64_t elements, Function&& function) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x * kAtATime;
  const uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (uint64_t first = thread * kAtATime; first < elements; first += stride) {
    const uint64_t left = elements - first;
    function(first, left < kAtATime ? static_cast<int>(left) : kAtATime);
  }
}

__global__ void EncodeKernel(PlainArgs args, uint64_t elements) {
  const uint32_t from = args.tensor.dtype;
  const uint32_t exponent = from == kF32 ? kF32Infinity : from == kBf16 ? 0x7f80 : 0x7c00;
  unsigned nonfinite = 0;
  ForElements(elements, [&](uint64_t first, int count) {
    uint32_t bits[kAtATime];
    LoadBits(args.tensor.data_dev, from, first, count, bits);
#pragma unroll
    for (int k = 0; k < kAtATime; ++k) nonfinite += (bits[k] & exponent) == exponent ? 1 : 0;
    Convert(from, args.wire_dtype, bits);
    StoreBits(args.blob_dev + kHeaderBytes, args.wire_dtype, first, count, bits);
  });
  if (nonfinite != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset),
              static_cast<unsigned long long>(nonfinite));
  }
}

__global__ void DecodeKernel(PlainArgs args, uint64_t elements) {
  ForElements(elements, [&](uint64_t first, int count) {
    uint32_t bits[kAtATime];
    LoadBits(args.blob_dev + kHeaderBytes, args.wire_dtype, first, count, bits);
    Convert(args.wire_dtype, args.tensor.dtype, bits);
    StoreBits(args.tensor.data_dev, args.tensor.dtype, first, count, bits);
  });
}

unsigned Blocks(uint64_t elements) {
  constexpr uint64_t kMost = 1 << 20;
  const uint64_t blocks = (elements + kThreads * kAtATime - 1) / (kThreads * kAtATime);
  return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

uint64_t Elements(const TensorArgs& tensor) {
  return static_cast<uint64_t>(tensor.samples) * tensor.tokens * tensor.channels;
}

}  // namespace

int EncodePlain(int device, const PlainArgs* args, void* stream) {
  const int error = WriteHeader(device, &args->header, args->blob_dev, stream);
  if (error != 0) return error;
  const uint64_t elements = Elements(args->tensor);
  EncodeKernel<<<Blocks(elements), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args,
                                                                                     elements);
  return Launched();
}

int DecodePlain(int device, const PlainArgs* args, void* stream) {
  const cudaError_t error = cudaSetDevice(device);
  if (error != cudaSuccess) return Launched();
  const uint64_t elements = Elements(args->tensor);
  DecodeKernel<<<Blocks(elements), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args,
                                                                                     elements);
  return Launched();
}

const PlainKernels kPlainKernels = {EncodePlain, DecodePlain};

}  // namespace longhaul::codec::cuda
