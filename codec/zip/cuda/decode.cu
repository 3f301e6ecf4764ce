#include "codec/cuda/module/kernels.cuh"
#include "codec/zip/cuda/group.cuh"
#include "codec/zip/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

// Two bf16 of two bytes of signs and mantissas, and two codes.
__device__ inline uint32_t PairOf(uint32_t signs, uint32_t codes, uint32_t below) {
  const uint32_t exponents = (codes + below) & 0x00ff00ff;
  return (signs & 0x007f007f) | (signs & 0x00800080) << 8 | exponents << 7;
}

__device__ inline void StoreEight(const ZipArgs& args, uint64_t first, int count,
                                  const uint32_t (&words)[4]) {
  if (args.tensor.dtype == kBf16 && count == kAtATime &&
      reinterpret_cast<uintptr_t>(args.tensor.data_dev) % 16 == 0) {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(args.tensor.data_dev) + first) =
        make_uint4(words[0], words[1], words[2], words[3]);
    return;
  }
  uint32_t bits[kAtATime];
#pragma unroll
  for (int k = 0; k < kAtATime; ++k) bits[k] = words[k / 2] >> k % 2 * 16 & 0xffff;
  Convert(kBf16, args.tensor.dtype, bits);
  StoreBits(args.tensor.data_dev, args.tensor.dtype, first, count, bits);
}

__device__ inline void StoreOne(const ZipArgs& args, uint64_t element, uint32_t bits) {
  if (args.tensor.dtype == kBf16) {
    static_cast<uint16_t*>(args.tensor.data_dev)[element] = static_cast<uint16_t>(bits);
  } else {
    StoreElement(Bf16ToF32(static_cast<uint16_t>(bits)), args.tensor.data_dev, args.tensor.dtype,
                 element);
  }
}

// Decodes a payload that is the elements themselves.
__device__ inline void CopyElements(const ZipArgs& args, uint64_t group) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int row = 0; row < kZipRows; ++row) {
    const uint64_t first = group * zip::kGroup + row * zip::kRow + lane * kAtATime;
    const int count = CountAt(first, args.elements);
    if (count == 0) return;
    uint32_t bits[kAtATime];
    LoadBits(args.blob_dev + kHeaderBytes, kBf16, first, count, bits);
    Convert(kBf16, args.tensor.dtype, bits);
    StoreBits(args.tensor.data_dev, args.tensor.dtype, first, count, bits);
  }
}

__global__ void __launch_bounds__(kThreads) ZipDecodeKernel(const __grid_constant__ ZipArgs args) {
  const unsigned lane = threadIdx.x % kWarp;
  const uint64_t group = uint64_t{blockIdx.x} * kZipGroups + threadIdx.x / kWarp;
  if (group >= args.groups) return;
  const unsigned char* const payload = args.blob_dev + kHeaderBytes;
  uint64_t payload_bytes = args.payload_bytes;
  if (payload_bytes == 0) {
    payload_bytes = *reinterpret_cast<const uint64_t*>(args.blob_dev + kPayloadBytesOffset);
    if (payload_bytes > args.most_payload_bytes) {
      // One thread of the grid alone: the fault word may lie in host memory, where an atomic takes
      // a microsecond.
      if (blockIdx.x == 0 && threadIdx.x == 0) atomicOr(args.fault_dev, kFaultCut);
      return;
    }
    if (payload_bytes == args.raw) {
      CopyElements(args, group);
      return;
    }
  }
  const auto* const starts = reinterpret_cast<const uint32_t*>(payload);
  const uint32_t start = starts[group], end = starts[group + 1], all = starts[args.groups];
  const uint32_t low = payload[args.lows + group];
  // Code 1 is `low`: 255 is added to 256 bytes.
  const uint32_t below = ((low + 255) & 0xff) * 0x00010001;
  uint32_t planes[zip::kPlanes];  // of the lane, a byte a row
  const uint64_t offset = group * (zip::kGroup / kAtATime) + WordOffset(lane);
#pragma unroll
  for (int plane = 0; plane < static_cast<int>(zip::kPlanes); ++plane) {
    const unsigned char* const at = payload + args.codes + plane * args.plane_bytes + offset;
    planes[plane] = offset < args.plane_bytes ? *reinterpret_cast<const uint32_t*>(at) : 0;
  }
#pragma unroll
  for (int plane = 0; plane < static_cast<int>(zip::kPlanes); ++plane) {
    planes[plane] = Transposed(planes[plane]);
  }
  uint32_t valid = 0;
#pragma unroll
  for (int row = 0; row < kZipRows; ++row) {
    const uint64_t first = group * zip::kGroup + row * zip::kRow + lane * kAtATime;
    const int count = CountAt(first, args.elements);
    if (count == 0) continue;
    valid |= ((1u << count) - 1) << row * kAtATime;
    // Sections are padded to 16 bytes, so all eight are there.
    const uint2 signs = *reinterpret_cast<const uint2*>(payload + args.signs + first);
    uint32_t words[4];
    // The row's byte of each plane.
    const uint32_t two = __byte_perm(planes[0], planes[1], row | (row + 4) << 4);
    const uint32_t codes = CodesOf(__byte_perm(two, planes[2], 0x0010 | (row + 4) << 8) & 0xffffff);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t of_pair =
          __byte_perm(k < 2 ? signs.x : signs.y, 0, k % 2 == 0 ? 0x4140 : 0x4342);
      words[k] = PairOf(of_pair, codes >> 4 * k & 0x00070007, below);
    }
    StoreEight(args, first, count, words);
  }
  uint32_t escaped = valid & ~(planes[0] | planes[1] | planes[2]);
  const WarpSum own = SumOverWarp(__popc(escaped));
  // No other bytes are read than the blob has, whatever it says.
  const bool bad = end < start || end > all || end - start != own.all ||
                   args.escapes + (uint64_t{all} + 15) / 16 * 16 != payload_bytes ||
                   (group == 0 && start != 0);
  if (bad) {
    if (lane == 0) atomicOr(args.fault_dev, kFaultContents);
    __syncwarp();  // what its lanes have stored
    for (uint32_t k = lane; k < zip::kGroup; k += kWarp) {
      if (group * zip::kGroup + k < args.elements) StoreOne(args, group * zip::kGroup + k, 0x7fff);
    }
    return;
  }
  const unsigned char* from = payload + args.escapes + start + own.before;
  for (; escaped != 0; escaped &= escaped - 1, ++from) {
    const uint64_t element =
        group * zip::kGroup + PlaceOf(lane, __ffs(static_cast<int>(escaped)) - 1);
    const uint32_t sign = payload[args.signs + element];
    StoreOne(args, element, (sign & 0x80) << 8 | uint32_t{*from} << 7 | (sign & 0x7f));
  }
}

}  // namespace

int DecodeZip(int device, const ZipArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto blocks = static_cast<unsigned>((args->groups + kZipGroups - 1) / kZipGroups);
  ZipDecodeKernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
  return Launched();
}

}  // namespace longhaul::codec::cuda
