// The entries of KernelTable (kernel_table.h), and how encoders begin.
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

// What is written before the rest: the header, the zeros of the payload (paddings, sections that
// are or-ed into), the zeros of the scratch memory.
struct Beginning {
  static constexpr int kRanges = 8;
  HeaderArgs header;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;
  uint64_t scratch_bytes;
  struct Range {
    uint64_t first, end;  // in the payload, multiples of 8; unused ones are empty
  } ranges[kRanges];
};
// Queues it on a stream of the current device.
int Begin(const Beginning& beginning, cudaStream_t stream);
// Or a kernel has as many blocks of kThreads do it beside its own.
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

// A launch's blocks, their threads, and the bytes of shared memory that it adds to each.
struct LaunchShape {
  dim3 blocks;
  unsigned threads;
  size_t shared_bytes;
};
// Whether the current device begins a kernel while the one before it ends.
int BeginsKernelsEarly(bool* early);
// Queues a kernel that may begin while the one before it on the stream, which is one of the same
// call, ends: it says AwaitKernelBefore() before it touches anything but the call's input.
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
// Until all that kernels before this one wrote is there.
__device__ inline void AwaitKernelBefore() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may take what this one's blocks leave of a processor.
__device__ inline void LetNextKernelBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Blocks of kThreads of this kernel that the current device runs at once, at most `most`;
// `shared_bytes` that a launch adds.
int ResidentBlocks(const void* kernel, uint64_t most, unsigned* blocks, size_t shared_bytes = 0);

}  // namespace longhaul::codec::cuda
