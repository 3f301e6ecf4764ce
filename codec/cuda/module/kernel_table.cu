#include <cuda_runtime_api.h>

#include <algorithm>

#include "codec/aqsgd/cuda/kernels.h"
#include "codec/cuda/kernel_table.h"
#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/dither/cuda/kernels.h"
#include "codec/fixed/cuda/kernels.h"
#include "codec/gauss/cuda/kernels.h"
#include "codec/plain/cuda/kernels.h"
#include "codec/predict/cuda/kernels.h"
#include "codec/taco/cuda/kernels.h"
#include "codec/tah/cuda/kernels.h"
#include "codec/zip/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

__global__ void BeginKernel(const __grid_constant__ Beginning beginning) {
  LetNextKernelBegin();
  WriteBeginning(beginning, blockIdx.x, gridDim.x);
}

}  // namespace

unsigned BeginningBlocks(const Beginning& beginning) {
  uint64_t work = beginning.scratch_bytes / 4;
  for (const Beginning::Range& range : beginning.ranges) {
    work = std::max(work, range.end - range.first);
  }
  constexpr uint64_t kMostBlocks = 1024;
  return static_cast<unsigned>(std::min<uint64_t>(work / kThreads + 1, kMostBlocks));
}

int Begin(const Beginning& beginning, cudaStream_t stream) {
  BeginKernel<<<BeginningBlocks(beginning), kThreads, 0, stream>>>(beginning);
  return Launched();
}

int BeginsKernelsEarly(bool* early) {
  int device = 0;
  int major = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
    return Launched();
  }
  constexpr int kHopper = 9;
  *early = major >= kHopper;
  return 0;
}

int ResidentBlocks(const void* kernel, uint64_t most, unsigned* blocks, size_t shared_bytes) {
  int device = 0;
  int processors = 0;
  int per_processor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, kThreads,
                                                    shared_bytes) != cudaSuccess) {
    return Launched();
  }
  const auto resident = static_cast<uint64_t>(processors) * std::max(per_processor, 1);
  *blocks = static_cast<unsigned>(std::min(resident, std::max<uint64_t>(most, 1)));
  return 0;
}

int WriteHeader(int device, const HeaderArgs* header, unsigned char* blob_dev, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  Beginning beginning{};
  beginning.header = *header;
  beginning.blob_dev = blob_dev;
  return Begin(beginning, static_cast<cudaStream_t>(stream));
}

namespace {

template <class Kernels>
constexpr FamilyKernels Row(const Kernels& kernels) {
  return {Kernels::kName, &kernels};
}

constexpr FamilyKernels kFamilies[] = {
    Row(kPlainKernels), Row(kFixedKernels),  Row(kTahKernels),
    Row(kGaussKernels), Row(kDitherKernels), Row(kAqsgdKernels),
    Row(kZipKernels),   Row(kTacoKernels),   Row(kPredictKernels),
};

}  // namespace

extern const KernelTable kKernelTable;
const KernelTable kKernelTable = {
    .write_header = WriteHeader,
    .families = kFamilies,
    .family_count = sizeof(kFamilies) / sizeof(kFamilies[0]),
    .sdp4bit_encode = EncodeSdp4bit,
    .sdp4bit_decode = DecodeSdp4bit,
    .sdp4bit_transform = TransformSdp4bit,
    .sdp4bit_mean = MeanSdp4bit,
    .tagc_select = SelectTagc,
    .dequantize = DequantizeMatrix,
};

}  // namespace longhaul::codec::cuda
