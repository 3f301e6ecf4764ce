// zip on a GPU, in two kernels. The first writes the static part, and of each group's escapes their
// number and the first few; the second counts them up and writes them where they belong, or copies
// the elements where that is no longer. So no block waits for another.
#include "codec/cuda/module/kernels.cuh"
#include "codec/zip/cuda/group.cuh"
#include "codec/zip/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

// The words of a lane's eight elements in a row, two bf16 in each. kWhole: all are there, in bf16,
// at a multiple of 16 bytes.
template <bool kWhole>
__device__ inline void LoadEight(const ZipArgs& args, uint64_t first, uint32_t (&words)[4]) {
  if constexpr (kWhole) {
    const uint4 all =
        *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(args.tensor.data_dev) + first);
    words[0] = all.x;
    words[1] = all.y;
    words[2] = all.z;
    words[3] = all.w;
  } else {
    uint32_t bits[kAtATime];
    LoadBits(args.tensor.data_dev, args.tensor.dtype, first, CountAt(first, args.elements), bits);
    Convert(args.tensor.dtype, kBf16, bits);
#pragma unroll
    for (int k = 0; k < 4; ++k) words[k] = (bits[2 * k] & 0xffff) | bits[2 * k + 1] << 16;
  }
}

// How many groups, from the first on, take the short way (kWhole).
uint64_t WholeGroups(const ZipArgs& args) {
  const bool aligned = reinterpret_cast<uintptr_t>(args.tensor.data_dev) % 16 == 0;
  return args.tensor.dtype == kBf16 && aligned ? args.elements / zip::kGroup : 0;
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

// A lane's codes in a row (group.cuh).
__device__ inline uint32_t EncodeEight(const uint32_t (&words)[4], uint32_t low) {
  // In each half exponent - low + 1, with 256 more so that nothing is borrowed. What is no code
  // becomes 256 or 264, whose three lowest bits are 0.
  const uint32_t shift = (257 - low) * 0x00010001;
  uint32_t codes = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const uint32_t code = (words[k] >> 7 & 0x00ff00ff) + shift;
    codes += (__vminu2(__vmaxu2(code, 0x01000100), 0x01080108) & 0x00070007) << 4 * k;
  }
  return codes;
}

// Signs and mantissas of two words, a byte each.
__device__ inline uint32_t SignsOf(uint32_t one, uint32_t other) {
  const auto of_halves = [](uint32_t w) { return (w & 0x007f007f) | (w >> 8 & 0x00800080); };
  return __byte_perm(of_halves(one), of_halves(other), 0x6420);
}

// All but the escapes and starts. Gives the mask of the lane's escapes, a byte a row.
template <bool kWhole>
__device__ uint32_t WriteStatic(const ZipArgs& args, uint64_t group,
                                const uint32_t (&words)[kZipRows][4], uint32_t low) {
  const unsigned lane = threadIdx.x % kWarp;
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  uint32_t rows[kZipRows];  // a byte a plane
  uint32_t valid = kWhole ? 0xffffffff : 0;
#pragma unroll
  for (int row = 0; row < kZipRows; ++row) {
    const uint64_t first = group * zip::kGroup + row * zip::kRow + lane * kAtATime;
    const uint2 signs =
        make_uint2(SignsOf(words[row][0], words[row][1]), SignsOf(words[row][2], words[row][3]));
    unsigned char* const to = payload + args.signs + first;
    if constexpr (kWhole) {
      *reinterpret_cast<uint2*>(to) = signs;
    } else {
      const int count = CountAt(first, args.elements);
      valid |= ((1u << count) - 1) << row * kAtATime;
      for (int k = 0; k < count; ++k) {
        to[k] = static_cast<unsigned char>((k < 4 ? signs.x : signs.y) >> k % 4 * 8);
      }
    }
    rows[row] = PlanesOf(EncodeEight(words[row], low));
  }
  // A byte of each plane for each row.
  const uint32_t first_pair = __byte_perm(rows[0], rows[1], 0x5140);
  const uint32_t second_pair = __byte_perm(rows[2], rows[3], 0x5140);
  const uint32_t planes[zip::kPlanes] = {
      __byte_perm(first_pair, second_pair, 0x5410) & valid,
      __byte_perm(first_pair, second_pair, 0x7632) & valid,
      __byte_perm(__byte_perm(rows[0], rows[1], 0x7362), __byte_perm(rows[2], rows[3], 0x7362),
                  0x5410) &
          valid};
  const uint64_t offset = group * (zip::kGroup / kAtATime) + WordOffset(lane);
#pragma unroll
  for (int plane = 0; plane < static_cast<int>(zip::kPlanes); ++plane) {
    const uint32_t word = Transposed(planes[plane]);
    // A section ends with its padding, which is zeros.
    if (kWhole || offset < args.plane_bytes) {
      *reinterpret_cast<uint32_t*>(payload + args.codes + plane * args.plane_bytes + offset) = word;
    }
  }
  return valid & ~(planes[0] | planes[1] | planes[2]);
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

// The exponents of a lane's escapes, to places from `place` on that lie below `end`.
__device__ inline void WriteEscapes(const ZipArgs& args, uint64_t group, uint32_t escaped,
                                    unsigned char* to, uint64_t place, uint64_t end) {
  const unsigned lane = threadIdx.x % kWarp;
  for (; escaped != 0 && place < end; escaped &= escaped - 1, ++place) {
    const uint32_t bit = __ffs(static_cast<int>(escaped)) - 1;
    to[place] =
        static_cast<unsigned char>(ExponentAt(args, group * zip::kGroup + PlaceOf(lane, bit)));
  }
}

// What a warp has at hand of its group.
struct GroupAtHand {
  uint4 words[kZipRows][kWarp];
  unsigned char slot[kZipSlot];
};

template <bool kWhole>
__device__ void EncodeGroup(const ZipArgs& args, uint64_t group, GroupAtHand* at_hand) {
  const unsigned lane = threadIdx.x % kWarp;
  uint32_t words[kZipRows][4];
#pragma unroll
  for (int row = 0; row < kZipRows; ++row) {
    LoadEight<kWhole>(args, group * zip::kGroup + row * zip::kRow + lane * kAtATime, words[row]);
  }
#pragma unroll
  for (int row = 0; row < kZipRows; ++row) {
    at_hand->words[row][lane] =
        make_uint4(words[row][0], words[row][1], words[row][2], words[row][3]);
  }
  const uint32_t largest = LargestExponent(words);
  const uint32_t low = LowOf(largest);
  AwaitKernelBefore();
  LetNextKernelBegin();
  const uint32_t escaped = WriteStatic<kWhole>(args, group, words, low);
  const ZipScratch scratch(args.groups);
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
  const WarpSum own = SumOverWarp(__popc(escaped));
  if (lane == 0) {
    args.blob_dev[kHeaderBytes + args.lows + group] = static_cast<unsigned char>(low);
    reinterpret_cast<uint32_t*>(args.scratch_dev + scratch.counts)[group] = own.all;
    if (own.all > 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(args.scratch_dev + scratch.sums) +
                    group / kZipCounted,
                static_cast<unsigned long long>(own.all));
    }
  }
  // A lane reads what it has written itself.
  const auto* const elements = reinterpret_cast<const uint16_t*>(at_hand->words);
  uint32_t place = own.before;
  for (uint32_t left = escaped; left != 0 && place < kZipSlot; left &= left - 1, ++place) {
    const uint32_t element = PlaceOf(lane, __ffs(static_cast<int>(left)) - 1);
    at_hand->slot[place] = static_cast<unsigned char>(elements[element] >> 7);
  }
  __syncwarp();
  constexpr unsigned kWords = kZipSlot / 4;
  if (lane < kWords && lane * 4 < own.all) {
    reinterpret_cast<uint32_t*>(args.scratch_dev + scratch.slots)[group * kWords + lane] =
        reinterpret_cast<const uint32_t*>(at_hand->slot)[lane];
  }
}

// kWhole: groups that are whole, in bf16 and aligned. They have a kernel of their own: what others
// need takes registers that keep warps away. `first_group` is that of block 0.
template <bool kWhole>
__global__ void __launch_bounds__(kThreads)
    ZipEncodeKernel(const __grid_constant__ ZipArgs args, uint64_t first_group,
                    uint64_t end_group) {
  __shared__ GroupAtHand at_hand[kZipGroups];
  const unsigned warp = threadIdx.x / kWarp;
  const uint64_t group = first_group + uint64_t{blockIdx.x} * kZipGroups + warp;
  if (group >= end_group) return;
  EncodeGroup<kWhole>(args, group, &at_hand[warp]);
}

// Sums a value of each thread over the block; all threads get the sum.
__device__ uint64_t SumOverBlock(uint64_t value, uint64_t* of_warps) {
#pragma unroll
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  __syncthreads();  // the sum before was read
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  uint64_t sum = 0;
  for (unsigned w = 0; w < kThreads / kWarp; ++w) sum += of_warps[w];
  return sum;
}

__device__ inline void ZeroBytes(unsigned char* payload, uint64_t from, uint64_t to) {
  if (from + threadIdx.x < to) payload[from + threadIdx.x] = 0;
}

// By one block: the header and the paddings.
__device__ void WriteEnd(const ZipArgs& args, uint64_t escapes, const ZipScratch& scratch) {
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  const uint64_t end = args.escapes + (escapes + 15) / 16 * 16;
  ZeroBytes(payload, 4 * (args.groups + 1), args.lows);
  ZeroBytes(payload, args.lows + args.groups, args.signs);
  ZeroBytes(payload, args.signs + args.elements, args.codes);
  ZeroBytes(payload, args.escapes + escapes, end);
  if (threadIdx.x != 0) return;
  reinterpret_cast<uint32_t*>(payload)[args.groups] = static_cast<uint32_t>(escapes);
  *reinterpret_cast<uint64_t*>(args.blob_dev + kPayloadBytesOffset) = end;
  *reinterpret_cast<uint64_t*>(args.blob_dev + kNonfiniteOffset) =
      *reinterpret_cast<const uint64_t*>(args.scratch_dev + scratch.nonfinite);
}

// The mask of a lane's escapes, out of the codes.
__device__ uint32_t EscapedIn(const ZipArgs& args, uint64_t group) {
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned char* const planes = args.blob_dev + kHeaderBytes + args.codes;
  uint32_t escaped = 0;
  for (int row = 0; row < kZipRows; ++row) {
    const uint64_t first = group * zip::kGroup + row * zip::kRow + lane * kAtATime;
    const int count = CountAt(first, args.elements);
    if (count == 0) continue;
    const unsigned char* const at = planes + first / kAtATime;
    const uint32_t codes = at[0] | at[args.plane_bytes] | at[2 * args.plane_bytes];
    escaped |= (~codes & ((1u << count) - 1)) << row * kAtATime;
  }
  return escaped;
}

// The starts and escapes of this block's groups, where `before` are those of all groups before it.
__device__ void WriteGroups(const ZipArgs& args, uint64_t before, const ZipScratch& scratch) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  const uint64_t block = uint64_t{blockIdx.x} * kZipFinishedGroups;
  static_assert(kZipFinishedGroups == kWarp);
  const auto* const counts = reinterpret_cast<const uint32_t*>(args.scratch_dev + scratch.counts);
  // Every warp knows all of the block's groups, a lane each.
  const uint32_t count = block + lane < args.groups ? counts[block + lane] : 0;
  const WarpSum sum = SumOverWarp(count);
  if (warp == 0 && block + lane < args.groups) {
    reinterpret_cast<uint32_t*>(payload)[block + lane] = static_cast<uint32_t>(before + sum.before);
  }
  constexpr unsigned kWarps = kThreads / kWarp, kOfWarp = kZipFinishedGroups / kWarps;
  constexpr int kTurns = kZipSlot / kWarp;
  unsigned char some[kOfWarp][kTurns];  // of all its groups before any is written
#pragma unroll
  for (unsigned k = 0; k < kOfWarp; ++k) {
    const unsigned which = k * kWarps + warp;
    const uint32_t own = __shfl_sync(kAllLanes, count, which);
    const unsigned char* const slot =
        args.scratch_dev + scratch.slots + (block + which) * kZipSlot + lane;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const bool mine = lane + turn * kWarp < own && own <= kZipSlot;
      some[k][turn] = mine ? slot[turn * kWarp] : 0;
    }
  }
#pragma unroll
  for (unsigned k = 0; k < kOfWarp; ++k) {
    const unsigned which = k * kWarps + warp;
    const uint32_t own = __shfl_sync(kAllLanes, count, which);
    unsigned char* const to =
        payload + args.escapes + before + __shfl_sync(kAllLanes, sum.before, which);
    if (own > kZipSlot) {
      const uint32_t escaped = EscapedIn(args, block + which);
      const uint32_t first = SumOverWarp(__popc(escaped)).before;
      WriteEscapes(args, block + which, escaped, to, first, own);
      continue;
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (lane + turn * kWarp < own) to[lane + turn * kWarp] = some[k][turn];
    }
  }
}

// The elements of this block's groups as they are; the header says so already.
__device__ void WriteElements(const ZipArgs& args) {
  uint32_t nonfinite = 0;
  const uint64_t begin = uint64_t{blockIdx.x} * kZipFinishedGroups * zip::kGroup;
  for (uint64_t k = threadIdx.x; k < kZipFinishedGroups * zip::kGroup / kAtATime; k += blockDim.x) {
    const uint64_t first = begin + k * kAtATime;
    const int count = CountAt(first, args.elements);
    if (count == 0) break;
    uint32_t bits[kAtATime];
    LoadBits(args.tensor.data_dev, args.tensor.dtype, first, count, bits);
    Convert(args.tensor.dtype, kBf16, bits);
#pragma unroll
    for (int i = 0; i < kAtATime; ++i) {
      nonfinite += (bits[i] & 0x7f80) == 0x7f80 ? 1 : 0;
    }
    StoreBits(args.blob_dev + kHeaderBytes, kBf16, first, count, bits);
  }
  if (nonfinite != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset),
              static_cast<unsigned long long>(nonfinite));
  }
}

__global__ void __launch_bounds__(kThreads) ZipFinishKernel(const __grid_constant__ ZipArgs args) {
  __shared__ uint64_t of_warps[kThreads / kWarp];
  AwaitKernelBefore();
  if (args.may_be_smaller == 0) {
    WriteElements(args);
    return;
  }
  const ZipScratch scratch(args.groups);
  const auto* const sums = reinterpret_cast<const uint64_t*>(args.scratch_dev + scratch.sums);
  const auto* const counts = reinterpret_cast<const uint32_t*>(args.scratch_dev + scratch.counts);
  const uint64_t group = uint64_t{blockIdx.x} * kZipFinishedGroups;
  const uint64_t whole = group / kZipCounted;
  uint64_t all = 0, before = 0;
  for (uint64_t k = threadIdx.x; k < (args.groups + kZipCounted - 1) / kZipCounted;
       k += blockDim.x) {
    all += sums[k];
    if (k < whole) before += sums[k];
  }
  for (uint64_t k = whole * kZipCounted + threadIdx.x; k < group; k += blockDim.x) {
    before += counts[k];
  }
  all = SumOverBlock(all, of_warps);
  before = SumOverBlock(before, of_warps);
  if (all > args.most_escapes) {
    WriteElements(args);
    return;
  }
  WriteGroups(args, before, scratch);
  if (blockIdx.x == 0) WriteEnd(args, all, scratch);
}

}  // namespace

int EncodeZip(int device, const ZipArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto queue = static_cast<cudaStream_t>(stream);
  Beginning beginning{};
  beginning.header = args->header;
  beginning.blob_dev = args->blob_dev;
  beginning.scratch_dev = args->scratch_dev;
  beginning.scratch_bytes = ZipScratch(args->groups).zeroed;
  if (const int error = Begin(beginning, queue); error != 0) return error;
  const auto blocks_of = [](uint64_t groups, uint64_t of_block) {
    return LaunchShape{static_cast<unsigned>((groups + of_block - 1) / of_block), kThreads, 0};
  };
  if (args->may_be_smaller != 0) {
    const uint64_t whole = WholeGroups(*args), others = args->groups - whole;
    if (whole > 0) {
      const int error = LaunchNext(ZipEncodeKernel<true>, blocks_of(whole, kZipGroups), queue,
                                   *args, uint64_t{0}, whole);
      if (error != 0) return error;
    }
    if (others > 0) {
      const int error = LaunchNext(ZipEncodeKernel<false>, blocks_of(others, kZipGroups), queue,
                                   *args, whole, args->groups);
      if (error != 0) return error;
    }
  }
  return LaunchNext(ZipFinishKernel, blocks_of(args->groups, kZipFinishedGroups), queue, *args);
}

int DecodeZip(int device, const ZipArgs* args, void* stream);  // decode.cu
const ZipKernels kZipKernels = {EncodeZip, DecodeZip};

}  // namespace longhaul::codec::cuda
