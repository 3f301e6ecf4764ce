// codec/tagc/select.h: the threshold by three histograms of digits, then bits, equal ones in order.
#include <algorithm>

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"

namespace longhaul::codec::cuda {
namespace {

constexpr unsigned kScanThreads = 1024;

// numbers[k] becomes the sum of the numbers before it. One block: there are some ten thousand
// numbers at most.
__global__ void __launch_bounds__(kScanThreads) ScanKernel(uint32_t* numbers, uint64_t count) {
  constexpr unsigned kWarps = kScanThreads / 32;
  __shared__ uint32_t of_warps[kWarps];
  uint32_t before = 0;
  for (uint64_t at = 0; at < count; at += kScanThreads) {
    const uint64_t k = at + threadIdx.x;
    const uint32_t own = k < count ? numbers[k] : 0;
    uint32_t sum = own;  // of this warp's lanes up to this one
    for (unsigned distance = 1; distance < 32; distance *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffff, sum, distance);
      if (threadIdx.x % 32 >= distance) sum += other;
    }
    if (threadIdx.x % 32 == 31) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    uint32_t all = 0;
    uint32_t warps_before = 0;
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      if (warp < threadIdx.x / 32) warps_before += of_warps[warp];
      all += of_warps[warp];
    }
    if (k < count) numbers[k] = before + warps_before + sum - own;
    before += all;
    __syncthreads();
  }
}

// Where the search is; zeros at first but for `keep`.
struct TagcChoice {
  uint32_t prefix, known;  // digits of the threshold that are found, and their mask
  uint64_t keep;           // how many are wanted among those that have the prefix
};
static_assert(sizeof(TagcChoice) == 16);

struct TagcDigit {
  uint32_t shift, mask;
};
constexpr TagcDigit kTagcDigits[] = {{20, 2047}, {10, 1023}, {0, 1023}};

__device__ inline uint32_t MagnitudeAt(const TagcSelectArgs& args, uint64_t element) {
  return __float_as_uint(args.values_dev[element]) & 0x7fffffff;
}
__device__ inline TagcChoice* ChoiceOf(const TagcSelectArgs& args) {
  return reinterpret_cast<TagcChoice*>(args.scratch_dev);
}
__device__ inline uint32_t* HistogramOf(const TagcSelectArgs& args) {
  return reinterpret_cast<uint32_t*>(args.scratch_dev + TagcSelectScratch(args.count).histogram);
}
__device__ inline uint32_t* EqualOf(const TagcSelectArgs& args) {
  return reinterpret_cast<uint32_t*>(args.scratch_dev + TagcSelectScratch(args.count).equal);
}

__global__ void TagcBeginKernel(const __grid_constant__ TagcSelectArgs args) {
  for (uint32_t bin = threadIdx.x; bin < kTagcBins; bin += blockDim.x) HistogramOf(args)[bin] = 0;
  if (threadIdx.x == 0) *ChoiceOf(args) = {0, 0, args.keep};
}

__global__ void __launch_bounds__(kThreads)
    TagcCountKernel(const __grid_constant__ TagcSelectArgs args, TagcDigit digit) {
  __shared__ uint32_t bins[kTagcBins];
  for (uint32_t bin = threadIdx.x; bin < kTagcBins; bin += kThreads) bins[bin] = 0;
  __syncthreads();
  const TagcChoice choice = *ChoiceOf(args);
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t k = uint64_t{blockIdx.x} * kThreads + threadIdx.x; k < args.count; k += stride) {
    const uint32_t magnitude = MagnitudeAt(args, k);
    if ((magnitude & choice.known) == choice.prefix) {
      atomicAdd(&bins[magnitude >> digit.shift & digit.mask], 1u);
    }
  }
  __syncthreads();
  for (uint32_t bin = threadIdx.x; bin < kTagcBins; bin += kThreads) {
    if (bins[bin] != 0) atomicAdd(&HistogramOf(args)[bin], bins[bin]);
  }
}

// One thread walks down the bins; all of them empty the histogram.
__global__ void TagcChooseKernel(const __grid_constant__ TagcSelectArgs args, TagcDigit digit) {
  uint32_t* const histogram = HistogramOf(args);
  if (threadIdx.x == 0) {
    TagcChoice choice = *ChoiceOf(args);
    uint32_t bin = digit.mask;
    while (histogram[bin] < choice.keep) choice.keep -= histogram[bin--];
    choice.prefix |= bin << digit.shift;
    choice.known |= digit.mask << digit.shift;
    *ChoiceOf(args) = choice;
  }
  __syncthreads();
  for (uint32_t bin = threadIdx.x; bin < kTagcBins; bin += blockDim.x) histogram[bin] = 0;
}

// A run of 2,048 elements is 32 words; a warp has four of them, in order.
constexpr uint32_t kWordsOfWarp = kTagcRun / 64 / (kThreads / kWarp);
struct TagcWord {
  uint64_t above, equal;
};
__device__ inline TagcWord WordOf(const TagcSelectArgs& args, uint64_t word, uint32_t threshold) {
  TagcWord found{};
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    const uint64_t element = word * 64 + half * 32 + threadIdx.x % kWarp;
    const bool there = element < args.count;
    const uint32_t magnitude = there ? MagnitudeAt(args, element) : 0;
    found.above |= uint64_t{__ballot_sync(kAllLanes, there && magnitude > threshold)} << 32 * half;
    found.equal |= uint64_t{__ballot_sync(kAllLanes, there && magnitude == threshold)} << 32 * half;
  }
  return found;
}

__global__ void __launch_bounds__(kThreads)
    TagcEqualKernel(const __grid_constant__ TagcSelectArgs args) {
  __shared__ uint32_t sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  const uint32_t threshold = ChoiceOf(args)->prefix;
  const uint64_t first =
      uint64_t{blockIdx.x} * (kTagcRun / 64) + threadIdx.x / kWarp * kWordsOfWarp;
  uint32_t own = 0;
  for (uint32_t k = 0; k < kWordsOfWarp; ++k) {
    own += __popcll(WordOf(args, first + k, threshold).equal);
  }
  if (threadIdx.x % kWarp == 0) atomicAdd(&sum, own);
  __syncthreads();
  if (threadIdx.x == 0) EqualOf(args)[blockIdx.x] = sum;
}

// The first `count` bits of a word.
__device__ inline uint64_t FirstBits(uint64_t word, uint64_t count) {
  uint64_t taken = 0;
  for (; word != 0 && count > 0; --count) {
    taken |= word & (0 - word);
    word &= word - 1;
  }
  return taken;
}

__global__ void __launch_bounds__(kThreads)
    TagcBitsKernel(const __grid_constant__ TagcSelectArgs args) {
  __shared__ uint32_t of_warps[kThreads / kWarp];
  const TagcChoice choice = *ChoiceOf(args);
  const uint32_t warp = threadIdx.x / kWarp;
  const uint64_t first = uint64_t{blockIdx.x} * (kTagcRun / 64) + warp * kWordsOfWarp;
  TagcWord words[kWordsOfWarp];
  uint32_t own = 0;
#pragma unroll
  for (uint32_t k = 0; k < kWordsOfWarp; ++k) {
    words[k] = WordOf(args, first + k, choice.prefix);
    own += __popcll(words[k].equal);
  }
  if (threadIdx.x % kWarp == 0) of_warps[warp] = own;
  __syncthreads();
  uint64_t before = EqualOf(args)[blockIdx.x];
  for (uint32_t k = 0; k < warp; ++k) before += of_warps[k];
  if (threadIdx.x % kWarp != 0) return;
#pragma unroll
  for (uint32_t k = 0; k < kWordsOfWarp; ++k) {
    const uint64_t left = choice.keep > before ? choice.keep - before : 0;
    if ((first + k) * 64 < args.count) {
      args.bitmap_dev[first + k] = words[k].above | FirstBits(words[k].equal, left);
    }
    before += __popcll(words[k].equal);
  }
}

}  // namespace

int SelectTagc(int device, const TagcSelectArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto queue = static_cast<cudaStream_t>(stream);
  const auto runs = static_cast<unsigned>((args->count + kTagcRun - 1) / kTagcRun);
  constexpr unsigned kMostBlocks = 1024;
  const unsigned counting = std::min(runs, kMostBlocks);
  TagcBeginKernel<<<1, kThreads, 0, queue>>>(*args);
  for (const TagcDigit digit : kTagcDigits) {
    TagcCountKernel<<<counting, kThreads, 0, queue>>>(*args, digit);
    TagcChooseKernel<<<1, kThreads, 0, queue>>>(*args, digit);
  }
  TagcEqualKernel<<<runs, kThreads, 0, queue>>>(*args);
  auto* const equal =
      reinterpret_cast<uint32_t*>(args->scratch_dev + TagcSelectScratch(args->count).equal);
  ScanKernel<<<1, kScanThreads, 0, queue>>>(equal, runs);
  TagcBitsKernel<<<runs, kThreads, 0, queue>>>(*args);
  return Launched();
}

}  // namespace longhaul::codec::cuda
