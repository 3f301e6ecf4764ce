// Sections of codec/sdp4bit: a thread has eight numbers in a row, a block 2,048 of them.
#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/sdp4bit/format.h"

namespace longhaul::codec::cuda {
namespace {

using sdp4bit::CodesOffset;
using sdp4bit::kCodeOffset;
using sdp4bit::kDifferenceGroup;
using sdp4bit::kGradientGroup;
using sdp4bit::kHadamard;
using sdp4bit::kTop;
using sdp4bit::SectionBytes;

constexpr uint32_t kEight = 8;
constexpr uint32_t kOfBlock = kThreads * kEight;
static_assert(kOfBlock == kDifferenceGroup);
static_assert(kHadamard == kWarp);

unsigned BlocksFor(uint64_t work, uint64_t of_block) {
  return static_cast<unsigned>((work + of_block - 1) / of_block);
}

// The largest of a group's magnitudes, to all of its threads.
template <uint32_t kGroup>
__device__ uint32_t LargestOfGroup(uint32_t largest) {
  constexpr uint32_t kLanes = kGroup / kEight < kWarp ? kGroup / kEight : kWarp;
#pragma unroll
  for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  }
  if constexpr (kGroup > kEight * kWarp) {
    __shared__ uint32_t of_warps[kThreads / kWarp];
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = largest;
    __syncthreads();
    for (const uint32_t other : of_warps) largest = max(largest, other);
  }
  return largest;
}

template <uint32_t kGroup>
__global__ void __launch_bounds__(kThreads)
    Sdp4bitEncodeKernel(const __grid_constant__ Sdp4bitArgs args) {
  const uint64_t eight = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const uint64_t element = eight * kEight;
  float values[kEight];
  uint32_t largest = 0;
#pragma unroll
  for (uint32_t k = 0; k < kEight; ++k) {
    values[k] = element + k < args.count ? args.values_dev[element + k] : 0.0f;
    largest = max(largest, __float_as_uint(values[k]) & 0x7fffffff);
  }
  largest = LargestOfGroup<kGroup>(largest);
  const bool finite = largest < kF32Infinity;
  const float step = __fdiv_rn(__uint_as_float(largest), static_cast<float>(kTop));
  if (element % kGroup == 0 && element < args.count) {
    reinterpret_cast<float*>(args.section_dev)[element / kGroup] =
        finite ? step : __uint_as_float(0x7fc00000);
  }
  const bool zero = !finite || !(step > 0);
  Philox::Counter noises{};
  if (args.stochastic != 0) noises = EightNoises(args.noise, (args.first + element) / kEight);
  uint32_t codes = 0;
#pragma unroll
  for (uint32_t k = 0; k < kEight; ++k) {
    const float quotient = zero ? 0.0f : __fdiv_rn(values[k], step);
    const float shift = args.stochastic != 0 ? MiddleOf(noises, static_cast<int>(k)) : 0.5f;
    const float rounded = fminf(fmaxf(floorf(__fadd_rn(quotient, shift)), -kTop), kTop);
    const auto code = static_cast<uint32_t>(static_cast<int>(rounded) + kCodeOffset);
    if (element + k < args.count) codes |= code << 4 * k;
  }
  const uint64_t offset = CodesOffset(args.count, kGroup);
  const uint64_t end = SectionBytes(args.count, kGroup);
  auto* const words = reinterpret_cast<uint32_t*>(args.section_dev + offset);
  if (offset + 4 * eight < end) words[eight] = codes;
  // Padding behind the last block's own words.
  if (blockIdx.x + 1 == gridDim.x) {
    for (uint64_t word = uint64_t{gridDim.x} * kThreads + threadIdx.x; offset + 4 * word < end;
         word += kThreads) {
      words[word] = 0;
    }
  }
}

// A number of a section.
__device__ inline float NumberOf(const unsigned char* section, uint64_t count, uint32_t group,
                                 uint64_t element) {
  const float step = reinterpret_cast<const float*>(section)[element / group];
  const uint32_t both = section[CodesOffset(count, group) + element / 2];
  const uint32_t code = element % 2 == 0 ? both & 15 : both >> 4;
  return __fmul_rn(static_cast<float>(static_cast<int>(code) - kCodeOffset), step);
}

__global__ void __launch_bounds__(kThreads)
    Sdp4bitDecodeKernel(const __grid_constant__ Sdp4bitArgs args) {
  const uint64_t eight = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const uint64_t element = eight * kEight;
  if (element >= args.count) return;
  const float step = reinterpret_cast<const float*>(args.section_dev)[element / args.group];
  // The last word is there: a section ends at a multiple of 16 bytes.
  const uint32_t codes = reinterpret_cast<const uint32_t*>(
      args.section_dev + CodesOffset(args.count, args.group))[eight];
#pragma unroll
  for (uint32_t k = 0; k < kEight; ++k) {
    const int code = static_cast<int>(codes >> 4 * k & 15) - kCodeOffset;
    if (element + k < args.count) {
      args.values_dev[element + k] = __fmul_rn(static_cast<float>(code), step);
    }
  }
}

// A lane's number of the butterflies over a warp's 32: codec/simd/hadamard-inl.h's order.
__device__ inline float Butterflies(float value) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    const float partner = __shfl_xor_sync(kAllLanes, value, distance);
    value = (lane & distance) != 0 ? __fsub_rn(partner, value) : __fadd_rn(value, partner);
  }
  return value;
}

__global__ void __launch_bounds__(kThreads)
    Sdp4bitTransformKernel(float* values_dev, uint64_t count, float factor) {
  const uint64_t element = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (element >= count) return;  // whole warps: count is a multiple of 32
  values_dev[element] = __fmul_rn(Butterflies(values_dev[element]), factor);
}

__global__ void __launch_bounds__(kThreads)
    Sdp4bitMeanKernel(const __grid_constant__ Sdp4bitSumArgs args) {
  const uint64_t element = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const uint64_t transformed = sdp4bit::Transformed(args.count);
  if (element >= transformed) return;  // whole warps
  float sum = 0;
  for (uint32_t part = 0; part < args.parts; ++part) {
    float value = 0;
    if (part == args.own) {
      const auto* const own = static_cast<const float*>(args.parts_dev[part]);
      // Times 1, as the CPU's: the bits of a NaN aside it changes nothing.
      value = __fmul_rn(Butterflies(element < args.count ? own[element] : 0.0f), 1.0f);
    } else {
      value = NumberOf(static_cast<const unsigned char*>(args.parts_dev[part]), transformed,
                       kGradientGroup, element);
    }
    sum = part == 0 ? value : __fadd_rn(sum, value);
  }
  const float back = __fmul_rn(Butterflies(sum), 1.0f / kHadamard);
  if (element < args.count) {
    args.out_dev[element] = __fdiv_rn(back, static_cast<float>(args.parts));
  }
}

}  // namespace

int EncodeSdp4bit(int device, const Sdp4bitArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const unsigned blocks = BlocksFor(args->count, kOfBlock);
  const auto queue = static_cast<cudaStream_t>(stream);
  if (args->group == kGradientGroup) {
    Sdp4bitEncodeKernel<kGradientGroup><<<blocks, kThreads, 0, queue>>>(*args);
  } else {
    Sdp4bitEncodeKernel<kDifferenceGroup><<<blocks, kThreads, 0, queue>>>(*args);
  }
  return Launched();
}

int DecodeSdp4bit(int device, const Sdp4bitArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  Sdp4bitDecodeKernel<<<BlocksFor(args->count, kOfBlock), kThreads, 0,
                        static_cast<cudaStream_t>(stream)>>>(*args);
  return Launched();
}

int TransformSdp4bit(int device, float* values_dev, uint64_t count, bool back, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  Sdp4bitTransformKernel<<<BlocksFor(count, kThreads), kThreads, 0,
                           static_cast<cudaStream_t>(stream)>>>(values_dev, count,
                                                                back ? 1.0f / kHadamard : 1.0f);
  return Launched();
}

int MeanSdp4bit(int device, const Sdp4bitSumArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  Sdp4bitMeanKernel<<<BlocksFor(sdp4bit::Transformed(args->count), kThreads), kThreads, 0,
                      static_cast<cudaStream_t>(stream)>>>(*args);
  return Launched();
}

}  // namespace longhaul::codec::cuda
