// Dequantizes matrices (codec/quantized/format.h): a thread has eight elements in a row.
#include <cuda_bf16.h>

#include <algorithm>

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/quantized/format.h"
#include "codec/quantized/maps.h"

namespace longhaul::codec::cuda {
namespace {

using quantized::Int8Layout;
using quantized::kAbsmaxGroup;
using quantized::kInt8Step;
using quantized::kNf4Block;
using quantized::Nf4Layout;

constexpr uint32_t kEight = 8;
// The maps are copied to shared memory once a thread block, so a block has many elements.
constexpr uint64_t kMostBlocks = 2048;

__constant__ quantized::Nf4Map kLevels = quantized::kNf4Map;
__constant__ quantized::DynamicMap kAbsmaxMap = quantized::kDynamicMap;

__device__ void Put(float value, float* to) {
  *to = value;
}
__device__ void Put(float value, __nv_bfloat16* to) {
  *to = __float2bfloat16_rn(value);
}

// Writes eight numbers, or the last `count` ones of a matrix.
template <class T>
__device__ void PutEight(const float (&values)[kEight], uint64_t count, T* to) {
  if (count >= kEight) {
    struct alignas(16) {
      T numbers[kEight];
    } eight;
#pragma unroll
    for (uint32_t k = 0; k < kEight; ++k) Put(values[k], &eight.numbers[k]);
    constexpr uint32_t kWords = sizeof(eight) / sizeof(uint4);
#pragma unroll
    for (uint32_t k = 0; k < kWords; ++k) {
      reinterpret_cast<uint4*>(to)[k] = reinterpret_cast<const uint4*>(&eight)[k];
    }
    return;
  }
#pragma unroll
  for (uint32_t k = 0; k < kEight; ++k) {
    if (k < count) Put(values[k], to + k);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    Nf4DequantizeKernel(const __grid_constant__ DequantizeArgs args) {
  __shared__ float levels[16];
  __shared__ float map[256];
  if (threadIdx.x < 16) levels[threadIdx.x] = kLevels.values[threadIdx.x];
  for (uint32_t k = threadIdx.x; k < 256; k += kThreads) map[k] = kAbsmaxMap.values[k];
  __syncthreads();
  const Nf4Layout layout(args.elements);
  const auto* const statistics = reinterpret_cast<const float*>(args.stored_dev);
  const float mean = statistics[0];
  const uint64_t eights = (args.elements + kEight - 1) / kEight;
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t eight = uint64_t{blockIdx.x} * kThreads + threadIdx.x; eight < eights;
       eight += stride) {
    const uint64_t element = eight * kEight, block = element / kNf4Block;
    const uint8_t code = args.stored_dev[layout.codes + block];
    const float absmax =
        __fadd_rn(__fmul_rn(map[code], statistics[1 + block / kAbsmaxGroup]), mean);
    // The bytes end at a multiple of 16, so that four can be read also where the elements end.
    const uint32_t packed =
        reinterpret_cast<const uint32_t*>(args.stored_dev + layout.levels)[eight];
    float values[kEight];
#pragma unroll
    for (uint32_t k = 0; k < kEight; ++k) {
      // The earlier one of two is in the upper half of their byte.
      const uint32_t shift = k / 2 * 8 + (k % 2 == 0 ? 4 : 0);
      values[k] = __fmul_rn(levels[packed >> shift & 15], absmax);
    }
    PutEight(values, args.elements - element, static_cast<T*>(args.out_dev) + element);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    Int8DequantizeKernel(const __grid_constant__ DequantizeArgs args) {
  const auto* const absmax = reinterpret_cast<const float*>(args.stored_dev);
  const Int8Layout layout(args.elements / args.columns, args.columns);
  const uint64_t eights = (args.elements + kEight - 1) / kEight;
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t eight = uint64_t{blockIdx.x} * kThreads + threadIdx.x; eight < eights;
       eight += stride) {
    const uint64_t element = eight * kEight;
    const uint64_t row = element / args.columns;
    const uint2 packed = reinterpret_cast<const uint2*>(args.stored_dev + layout.elements)[eight];
    // The element of this thread at which the next row begins.
    uint64_t next = (row + 1) * args.columns - element;
    uint64_t of = row;
    float values[kEight];
#pragma unroll
    for (uint32_t k = 0; k < kEight; ++k) {
      if (element + k < args.elements) {
        if (k >= next) {
          ++of;
          next += args.columns;
        }
        const uint32_t word = k < 4 ? packed.x : packed.y;
        const auto number = static_cast<int8_t>(word >> k % 4 * 8 & 255);
        values[k] = __fmul_rn(__fmul_rn(static_cast<float>(number), absmax[of]), kInt8Step);
      } else {
        values[k] = 0;
      }
    }
    PutEight(values, args.elements - element, static_cast<T*>(args.out_dev) + element);
  }
}

}  // namespace

int DequantizeMatrix(int device, const DequantizeArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  constexpr uint64_t kOfBlock = uint64_t{kThreads} * kEight;
  const auto blocks =
      static_cast<unsigned>(std::min(kMostBlocks, (args->elements + kOfBlock - 1) / kOfBlock));
  const auto queue = static_cast<cudaStream_t>(stream);
  if (args->columns == 0) {
    if (args->bf16 != 0) {
      Nf4DequantizeKernel<__nv_bfloat16><<<blocks, kThreads, 0, queue>>>(*args);
    } else {
      Nf4DequantizeKernel<float><<<blocks, kThreads, 0, queue>>>(*args);
    }
  } else if (args->bf16 != 0) {
    Int8DequantizeKernel<__nv_bfloat16><<<blocks, kThreads, 0, queue>>>(*args);
  } else {
    Int8DequantizeKernel<float><<<blocks, kThreads, 0, queue>>>(*args);
  }
  return Launched();
}

}  // namespace longhaul::codec::cuda
