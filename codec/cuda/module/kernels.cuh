// Host functions of the CUDA module: the functions of KernelTable (kernel_table.h), and helpers to
// launch kernels. They return a code of the CUDA runtime, 0 for success, and work on the calling
// thread's current device if they have no argument `device`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "codec/cuda/kernel_table.h"

namespace longhaul::codec::cuda {

int WriteHeader(int device, const HeaderArgs* header, unsigned char* blob_dev, void* stream);
int EncodeSdp4bit(int device, const Sdp4bitArgs* args, void* stream);
int DecodeSdp4bit(int device, const Sdp4bitArgs* args, void* stream);
int TransformSdp4bit(int device, float* values_dev, uint64_t count, bool back, void* stream);
int MeanSdp4bit(int device, const Sdp4bitSumArgs* args, void* stream);
int SelectTagc(int device, const TagcSelectArgs* args, void* stream);
int DequantizeMatrix(int device, const DequantizeArgs* args, void* stream);

// What an encoder writes first: the blob's header, zeros in ranges of the payload (paddings, and
// sections in which kernels set single bits), and zeros in scratch_bytes of the scratch memory.
struct Beginning {
  static constexpr int kRanges = 8;
  HeaderArgs header;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;
  uint64_t scratch_bytes;  // a multiple of 4
  struct Range {
    uint64_t first, end;  // offsets in the payload, multiples of 8; equal: the range is unused
  } ranges[kRanges];
};
// Queues a kernel that writes the beginning.
int Begin(const Beginning& beginning, cudaStream_t stream);
// Instead of Begin, an encoder's first kernel may write the beginning in thread blocks of its own:
// BeginningBlocks returns a good number of such blocks of kThreads threads. Block number `block` of
// these `blocks` calls WriteBeginning.
unsigned BeginningBlocks(const Beginning& beginning);
__device__ inline void WriteBeginning(const Beginning& beginning, uint32_t block, uint32_t blocks) {
  const uint64_t first = uint64_t{block} * blockDim.x + threadIdx.x;
  const uint64_t stride = uint64_t{blocks} * blockDim.x;
  if (first < 8) {
    reinterpret_cast<uint64_t*>(beginning.blob_dev)[first] = beginning.header.words[first];
  }
  for (uint64_t k = first; k < beginning.scratch_bytes / 4; k += stride) {
    reinterpret_cast<uint32_t*>(beginning.scratch_dev)[k] = 0;
  }
  for (const Beginning::Range& range : beginning.ranges) {
    auto* const words =
        reinterpret_cast<uint64_t*>(beginning.blob_dev + sizeof(HeaderArgs) + range.first);
    for (uint64_t k = first; k < (range.end - range.first) / 8; k += stride) words[k] = 0;
  }
}

// The shape of a launch.
struct LaunchShape {
  dim3 blocks;          // the grid
  unsigned threads;     // of a block
  size_t shared_bytes;  // dynamic shared memory of a block
};
// Sets *early to whether the current device can start a kernel while the previous kernel of the
// stream still runs (programmatic dependent launch, from compute capability 9.0 on).
int BeginsKernelsEarly(bool* early);
// Queues a kernel that may start while the previous kernel of the stream still runs. Both kernels
// must belong to the same call. `kernel` must call AwaitKernelBefore() before it touches anything
// but the call's input.
template <class... Parameters, class... Arguments>
int LaunchNext(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
               const Arguments&... arguments) {
  bool early = false;
  if (const int error = BeginsKernelsEarly(&early); error != 0) return error;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  return cudaGetLastError();
}
// Waits until all previous kernels of the stream have ended, and their writes are visible.
__device__ inline void AwaitKernelBefore() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Allows the next kernel of the stream (LaunchNext) to start on multiprocessors that have room,
// when all blocks of this kernel have called this function or have ended.
__device__ inline void LetNextKernelBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Sets *blocks to how many thread blocks of kThreads threads of this kernel the device can run at
// the same time, but at most `most`, and at least 1. `shared_bytes`: dynamic shared memory of a
// block.
int ResidentBlocks(const void* kernel, uint64_t most, unsigned* blocks, size_t shared_bytes = 0);

}  // namespace longhaul::codec::cuda
