// zip on a GPU, in two kernels: the first writes everything as if it were smaller than the
// elements, the second counts the escapes up, and copies the elements where it is not.
#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/zip_group.cuh"

namespace longhaul::codec::cuda {
namespace {

// A block's sum as others see it: nothing yet, its own escapes, those of all blocks up to it.
constexpr uint64_t kOwn = uint64_t{1} << 62, kAll = uint64_t{2} << 62, kFlags = uint64_t{3} << 62;

__device__ inline void Publish(uint64_t sum, uint64_t* place) {
  asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(place), "l"(sum) : "memory");
}
__device__ inline uint64_t Look(const uint64_t* place) {
  uint64_t sum = 0;
  asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(sum) : "l"(place) : "memory");
  return sum;
}

// By one warp: the escapes of all blocks before `block`, which have begun before it. It looks at 32
// of them at a time, back to the first that knows of all before itself.
__device__ uint64_t EscapesBefore(const uint64_t* sums, uint64_t block) {
  const unsigned lane = threadIdx.x % kWarp;
  uint64_t before = 0;
  for (uint64_t end = block; end > 0;) {
    uint64_t sum = kAll;  // of nobody
    if (lane < end) {
      do {
        sum = Look(&sums[end - 1 - lane]);
      } while ((sum & kFlags) == 0);
    }
    const unsigned known = __ballot_sync(kAllLanes, (sum & kFlags) == kAll);
    const unsigned last = known == 0 ? kWarp - 1 : __ffs(static_cast<int>(known)) - 1;
    uint64_t value = lane <= last ? sum & ~kFlags : 0;
#pragma unroll
    for (unsigned step = kWarp / 2; step > 0; step /= 2) {
      value += __shfl_xor_sync(kAllLanes, value, step);
    }
    before += value;
    if (known != 0) break;
    end -= kWarp;
  }
  return before;
}

// The words of a lane's eight elements in a row, two bf16 in each.
__device__ inline void LoadEight(const ZipArgs& args, uint64_t first, uint32_t (&words)[4]) {
  const int count = CountAt(first, args.elements);
  if (args.tensor.dtype == kBf16 && count == kAtATime &&
      reinterpret_cast<uintptr_t>(args.tensor.data_dev) % 16 == 0) {
    const uint4 all =
        *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(args.tensor.data_dev) + first);
    words[0] = all.x;
    words[1] = all.y;
    words[2] = all.z;
    words[3] = all.w;
    return;
  }
  uint32_t bits[kAtATime];
  LoadBits(args.tensor.data_dev, args.tensor.dtype, first, count, bits);
  Convert(args.tensor.dtype, kBf16, bits);
#pragma unroll
  for (int k = 0; k < 4; ++k) words[k] = (bits[2 * k] & 0xffff) | bits[2 * k + 1] << 16;
}

// Behind the last element LoadBits gives zeros, which Convert leaves.
__device__ inline uint32_t LargestExponent(const uint32_t (&words)[kZipRows][4]) {
  uint32_t most = 0;
#pragma unroll
  for (int row = 0; row < kZipRows; ++row) {
#pragma unroll
    for (int k = 0; k < 4; ++k) most = __vmaxu2(most, words[row][k] & 0x7fff7fff);
  }
  return max(most & 0xffff, most >> 16) >> 7;
}

__device__ inline uint32_t LowOf(uint32_t largest) {
  uint32_t top = __reduce_max_sync(kAllLanes, largest);
  while (__popc(__ballot_sync(kAllLanes, largest >= top)) < static_cast<int>(zip::kLanesAtTop)) {
    top = __reduce_max_sync(kAllLanes, largest < top ? largest : 0);
  }
  return top - min(top, zip::kWindow - 1);
}

// The bit planes of a lane's eight codes in a row, a byte each, and who has no code.
struct Planes {
  uint32_t bits[zip::kPlanes];
  uint32_t escaped;
};
__device__ inline Planes PlanesOf(const uint32_t (&words)[4], uint32_t low) {
  // In each half: exponent - low + 1, plus 256 so that nothing is borrowed. Codes are those whose
  // bits from the third on say 256.
  const uint32_t shift = (257 - low) * 0x00010001;
  uint32_t halves[zip::kPlanes] = {};
  uint32_t wrong = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const uint32_t x = (((words[k] >> 7) & 0x00ff00ff) + shift) ^ 0x01000100;
#pragma unroll
    for (int plane = 0; plane < static_cast<int>(zip::kPlanes); ++plane) {
      halves[plane] += ((x >> plane) & 0x00010001) << (2 * k);
    }
    // Bit 15 of a half where one of bits 3 to 8 is set.
    wrong += ((((x & 0x01f801f8) + 0x7ff87ff8) & 0x80008000) >> 15) << (2 * k);
  }
  const auto byte_of = [](uint32_t of_halves) {
    return (of_halves & 0x55) | (of_halves >> 15 & 0xaa);
  };
  const uint32_t without = byte_of(wrong);
  Planes planes;
  planes.escaped = 0xff;
#pragma unroll
  for (int plane = 0; plane < static_cast<int>(zip::kPlanes); ++plane) {
    planes.bits[plane] = byte_of(halves[plane]) & ~without;
    planes.escaped &= ~planes.bits[plane];
  }
  return planes;
}

// Signs and mantissas of two words, a byte each.
__device__ inline uint32_t SignsOf(uint32_t one, uint32_t other) {
  const auto of_halves = [](uint32_t w) { return (w & 0x007f007f) | (w >> 8 & 0x00800080); };
  return __byte_perm(of_halves(one), of_halves(other), 0x6420);
}

// All but the escapes. Gives the mask of the lane's escapes, a byte a row.
__device__ uint32_t WriteStatic(const ZipArgs& args, uint64_t group,
                                const uint32_t (&words)[kZipRows][4], uint32_t low) {
  const unsigned lane = threadIdx.x % kWarp;
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  uint32_t escaped = 0;
#pragma unroll
  for (int row = 0; row < kZipRows; ++row) {
    const uint64_t first = group * zip::kGroup + row * zip::kRow + lane * kAtATime;
    const int count = CountAt(first, args.elements);
    if (count == 0) continue;
    const uint2 signs =
        make_uint2(SignsOf(words[row][0], words[row][1]), SignsOf(words[row][2], words[row][3]));
    unsigned char* const to = payload + args.signs + first;
    const uint32_t valid = (1u << count) - 1;
    if (count == kAtATime) {
      *reinterpret_cast<uint2*>(to) = signs;
    } else {
      for (int k = 0; k < count; ++k) {
        to[k] = static_cast<unsigned char>((k < 4 ? signs.x : signs.y) >> k % 4 * 8);
      }
    }
    const Planes planes = PlanesOf(words[row], low);
#pragma unroll
    for (int plane = 0; plane < static_cast<int>(zip::kPlanes); ++plane) {
      payload[args.codes + plane * args.plane_bytes + first / kAtATime] =
          static_cast<unsigned char>(planes.bits[plane] & valid);
    }
    escaped |= (planes.escaped & valid) << row * kAtATime;
  }
  return escaped;
}

__device__ inline uint32_t ExponentAt(const ZipArgs& args, uint64_t element) {
  uint32_t bits = 0;
  if (args.tensor.dtype == kBf16) {
    bits = static_cast<const uint16_t*>(args.tensor.data_dev)[element];
  } else {
    bits = F32ToBf16(LoadElement(args.tensor.data_dev, args.tensor.dtype, element));
  }
  return bits >> 7 & 0xff;
}

__global__ void __launch_bounds__(kThreads) ZipEncodeKernel(const __grid_constant__ ZipArgs args) {
  __shared__ uint32_t turn;
  __shared__ uint32_t of_warps[kZipGroups];
  __shared__ uint64_t before;
  AwaitKernelBefore();
  LetNextKernelBegin();
  const ZipScratch scratch(args.groups);
  auto* const sums = reinterpret_cast<uint64_t*>(args.scratch_dev + scratch.sums);
  // Blocks take their work in the order in which they begin, so that all before one are at work.
  if (threadIdx.x == 0) {
    turn = atomicAdd(reinterpret_cast<uint32_t*>(args.scratch_dev + scratch.turn), 1);
  }
  __syncthreads();
  const uint64_t block = turn;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint64_t group = block * kZipGroups + warp;
  const bool has_group = group < args.groups;
  unsigned char* const payload = args.blob_dev + kHeaderBytes;

  uint32_t escaped = 0;
  if (has_group) {
    uint32_t words[kZipRows][4];
#pragma unroll
    for (int row = 0; row < kZipRows; ++row) {
      LoadEight(args, group * zip::kGroup + row * zip::kRow + lane * kAtATime, words[row]);
    }
    const uint32_t largest = LargestExponent(words);
    const uint32_t low = LowOf(largest);
    if (lane == 0) payload[args.lows + group] = static_cast<unsigned char>(low);
    escaped = WriteStatic(args, group, words, low);
    if (largest == 0xff) {
      uint32_t nonfinite = 0;
#pragma unroll
      for (int row = 0; row < kZipRows; ++row) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          nonfinite += (words[row][k] & 0x7f80) == 0x7f80 ? 1 : 0;
          nonfinite += (words[row][k] >> 16 & 0x7f80) == 0x7f80 ? 1 : 0;
        }
      }
      atomicAdd(reinterpret_cast<unsigned long long*>(args.scratch_dev + scratch.nonfinite),
                static_cast<unsigned long long>(nonfinite));
    }
  }
  const WarpSum own = SumOverWarp(__popc(escaped));
  if (lane == 0) of_warps[warp] = own.all;
  __syncthreads();
  if (warp == 0) {
    uint32_t all = 0;
    for (unsigned w = 0; w < kZipGroups; ++w) all += of_warps[w];
    if (lane == 0) Publish(all | (block == 0 ? kAll : kOwn), &sums[block]);
    const uint64_t earlier = EscapesBefore(sums, block);
    if (lane == 0) {
      if (block > 0) Publish((earlier + all) | kAll, &sums[block]);
      before = earlier;
      auto* const starts = reinterpret_cast<uint32_t*>(payload);
      if (block + 1 == scratch.blocks) starts[args.groups] = static_cast<uint32_t>(earlier + all);
    }
  }
  __syncthreads();
  if (!has_group) return;
  uint64_t start = before;
  for (unsigned w = 0; w < warp; ++w) start += of_warps[w];
  if (lane == 0) reinterpret_cast<uint32_t*>(payload)[group] = static_cast<uint32_t>(start);
  uint64_t place = start + own.before;
  for (; escaped != 0 && place < args.most_escapes; escaped &= escaped - 1, ++place) {
    const uint32_t bit = __ffs(static_cast<int>(escaped)) - 1;
    payload[args.escapes + place] =
        static_cast<unsigned char>(ExponentAt(args, group * zip::kGroup + PlaceOf(lane, bit)));
  }
}

__device__ inline void ZeroBytes(unsigned char* payload, uint64_t from, uint64_t to) {
  if (from + threadIdx.x < to) payload[from + threadIdx.x] = 0;
}

__global__ void __launch_bounds__(kThreads) ZipFinishKernel(const __grid_constant__ ZipArgs args) {
  AwaitKernelBefore();
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  const ZipScratch scratch(args.groups);
  uint64_t escapes = 0;
  bool smaller = args.may_be_smaller != 0;
  if (smaller) {
    escapes = Look(reinterpret_cast<const uint64_t*>(args.scratch_dev + scratch.sums) +
                   scratch.blocks - 1) &
              ~kFlags;
    smaller = escapes <= args.most_escapes;
  }
  if (smaller) {
    if (blockIdx.x != 0) return;
    const uint64_t end = args.escapes + (escapes + 15) / 16 * 16;
    ZeroBytes(payload, 4 * (args.groups + 1), args.lows);
    ZeroBytes(payload, args.lows + args.groups, args.signs);
    ZeroBytes(payload, args.signs + args.elements, args.codes);
    for (uint32_t plane = 0; plane < zip::kPlanes; ++plane) {
      const uint64_t begin = args.codes + plane * args.plane_bytes;
      ZeroBytes(payload, begin + (args.elements + 7) / 8, begin + args.plane_bytes);
    }
    ZeroBytes(payload, args.escapes + escapes, end);
    if (threadIdx.x == 0) {
      reinterpret_cast<uint64_t*>(args.blob_dev)[3] = end;
      *reinterpret_cast<uint64_t*>(args.blob_dev + kNonfiniteOffset) =
          *reinterpret_cast<const uint64_t*>(args.scratch_dev + scratch.nonfinite);
    }
    return;
  }
  // The elements themselves; the header says so already.
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x * kAtATime;
  uint32_t nonfinite = 0;
  for (uint64_t first = (uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kAtATime;
       first < args.elements; first += stride) {
    uint32_t words[4];
    LoadEight(args, first, words);
    const int count = CountAt(first, args.elements);
    uint32_t bits[kAtATime];
#pragma unroll
    for (int k = 0; k < kAtATime; ++k) {
      bits[k] = words[k / 2] >> k % 2 * 16 & 0xffff;
      nonfinite += (bits[k] & 0x7f80) == 0x7f80 ? 1 : 0;
    }
    StoreBits(payload, kBf16, first, count, bits);
  }
  if (nonfinite != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset),
              static_cast<unsigned long long>(nonfinite));
  }
}

// Enough to copy the elements; where they need no copy all but one go home at once.
unsigned FinishingBlocks(uint64_t elements) {
  constexpr uint64_t kMost = 1024;
  const uint64_t blocks = (elements + kThreads * kAtATime - 1) / (kThreads * kAtATime);
  return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

}  // namespace

int EncodeZip(int device, const ZipArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto queue = static_cast<cudaStream_t>(stream);
  const ZipScratch scratch(args->groups);
  Beginning beginning{};
  beginning.header = args->header;
  beginning.blob_dev = args->blob_dev;
  beginning.scratch_dev = args->scratch_dev;
  beginning.scratch_bytes = scratch.end;
  if (const int error = Begin(beginning, queue); error != 0) return error;
  if (args->may_be_smaller != 0) {
    const LaunchShape shape{static_cast<unsigned>(scratch.blocks), kThreads, 0};
    if (const int error = LaunchNext(ZipEncodeKernel, shape, queue, *args); error != 0) {
      return error;
    }
  }
  return LaunchNext(ZipFinishKernel, {FinishingBlocks(args->elements), kThreads, 0}, queue, *args);
}

}  // namespace longhaul::codec::cuda
