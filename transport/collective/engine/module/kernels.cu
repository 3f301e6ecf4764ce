// Sums in the order of ranks, and words for the host (kernel_table.h).
#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/half.h"
#include "transport/collective/engine/kernel_table.h"

namespace longhaul::collective {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint32_t kF32 = 1, kF16 = 2;

__device__ inline float Widened(uint32_t bits, uint32_t dtype) {
  return dtype == kF16 ? F16ToF32(static_cast<uint16_t>(bits))
                       : Bf16ToF32(static_cast<uint16_t>(bits));
}
__device__ inline uint32_t Narrowed(float value, uint32_t dtype) {
  return dtype == kF16 ? F32ToF16(value) : F32ToBf16(value);
}

// The sum so far and one more, or the larger of the two. A NaN stays one.
__device__ inline float Joined(float so_far, float value, bool largest) {
  if (!largest) return so_far + value;
  return value > so_far || value != value ? value : so_far;
}

// Sixteen bytes of every part at a time. kDtype is known to the compiler.
template <uint32_t kDtype>
__device__ uint4 SumOfSixteen(const SumArgs& args, uint64_t index) {
  constexpr int kValues = kDtype == kF32 ? 4 : 8;
  float sums[kValues];
  for (uint32_t part = 0; part < args.parts; ++part) {
    const uint4 words = static_cast<const uint4*>(args.parts_dev[part])[index];
    const uint32_t all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      const float value = kDtype == kF32 ? __uint_as_float(all[k % 4])
                                         : Widened(all[k / 2] >> k % 2 * 16 & 0xffff, kDtype);
      sums[k] = part == 0 ? value : Joined(sums[k], value, args.largest != 0);
    }
  }
  uint32_t out[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    out[k] = kDtype == kF32 ? __float_as_uint(sums[k])
                            : Narrowed(sums[2 * k % kValues], kDtype) |
                                  Narrowed(sums[(2 * k + 1) % kValues], kDtype) << 16;
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

template <uint32_t kDtype>
__device__ void SumOne(const SumArgs& args, uint64_t index) {
  float sum = 0;
  for (uint32_t part = 0; part < args.parts; ++part) {
    const float value =
        kDtype == kF32 ? static_cast<const float*>(args.parts_dev[part])[index]
                       : Widened(static_cast<const uint16_t*>(args.parts_dev[part])[index], kDtype);
    sum = part == 0 ? value : Joined(sum, value, args.largest != 0);
  }
  if constexpr (kDtype == kF32) {
    static_cast<float*>(args.out_dev)[index] = sum;
  } else {
    static_cast<uint16_t*>(args.out_dev)[index] = static_cast<uint16_t>(Narrowed(sum, kDtype));
  }
}

template <uint32_t kDtype>
__global__ void __launch_bounds__(kThreads)
    SumKernel(const __grid_constant__ SumArgs args, uint64_t sixteens, uint64_t rest) {
  const uint64_t first = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t k = first; k < sixteens; k += stride) {
    static_cast<uint4*>(args.out_dev)[k] = SumOfSixteen<kDtype>(args, k);
  }
  for (uint64_t k = args.count - rest + first; k < args.count; k += stride) {
    SumOne<kDtype>(args, k);
  }
}

template <uint32_t kDtype>
int LaunchSum(const SumArgs& args, cudaStream_t stream) {
  uintptr_t addresses = reinterpret_cast<uintptr_t>(args.out_dev);
  for (uint32_t part = 0; part < args.parts; ++part) {
    addresses |= reinterpret_cast<uintptr_t>(args.parts_dev[part]);
  }
  constexpr uint64_t kOfSixteen = kDtype == kF32 ? 4 : 8;
  const uint64_t sixteens = addresses % 16 == 0 ? args.count / kOfSixteen : 0;
  const uint64_t rest = args.count - sixteens * kOfSixteen;
  constexpr uint64_t kMostBlocks = 4096;
  const uint64_t work = std::max(sixteens, rest);
  const auto blocks =
      static_cast<unsigned>(std::clamp<uint64_t>((work + kThreads - 1) / kThreads, 1, kMostBlocks));
  SumKernel<kDtype><<<blocks, kThreads, 0, stream>>>(args, sixteens, rest);
  return cudaGetLastError();
}

int Sum(int device, const SumArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return cudaGetLastError();
  const auto queue = static_cast<cudaStream_t>(stream);
  switch (args->dtype) {
    case kF32:
      return LaunchSum<kF32>(*args, queue);
    case kF16:
      return LaunchSum<kF16>(*args, queue);
    default:
      return LaunchSum<3>(*args, queue);
  }
}

__global__ void ReadKernel(const __grid_constant__ ReadArgs args) {
  for (uint32_t k = threadIdx.x; k < args.count; k += blockDim.x) {
    args.to[k] = *static_cast<const uint64_t*>(args.from_dev[k]);
  }
  __threadfence_system();
}

int Read(int device, const ReadArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return cudaGetLastError();
  ReadKernel<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>(*args);
  return cudaGetLastError();
}

int Zero(int device, void* to_dev, uint64_t bytes, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return cudaGetLastError();
  cudaMemsetAsync(to_dev, 0, bytes, static_cast<cudaStream_t>(stream));
  return cudaGetLastError();
}

}  // namespace

int LaunchExchange(int device, const ExchangeArgs* args, void* stream);  // exchange.cu

extern const KernelTable kKernelTable;
const KernelTable kKernelTable = {
    .sum = Sum, .read = Read, .zero = Zero, .exchange = LaunchExchange};

}  // namespace longhaul::collective
