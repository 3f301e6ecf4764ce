// Step 2 of tah/format.h: which allocation tiles of a sample get 4 bits, without sorting them.
//
// Entropies are counted in bins as they are found (Record). One bin holds the threshold: what is
// above it gets 4 bits, what is below 3, and the rest is collected as candidates, whose sort keys
// (entropy, index) then decide byte by byte (Select). Exact for any entropies; quick where a bin
// holds few, which those of real tensors do.
#ifndef LONGHAUL_CODEC_CUDA_MODULE_TAH_SELECT_CUH_
#define LONGHAUL_CODEC_CUDA_MODULE_TAH_SELECT_CUH_

#include "codec/cuda/module/device_tile.cuh"
#include "codec/tah/cpu/entropy.h"

namespace longhaul::codec::cuda {

// Allocation tiles that a block collects at a time.
inline constexpr uint64_t kCollected = 32 * kTahGroup;

struct SampleChoice {
  uint64_t allocs, fours;  // 0 < fours < allocs
  float bins_per_bit;
  float* entropies_dev;
  uint32_t* histogram_dev;
  uint32_t* candidates_dev;
  uint32_t* candidate_count_dev;
  // Of each group of kTahGroup: how many get 4 bits; in the end how many before the group do.
  uint32_t* group_counts_dev;
  uint64_t* threshold_dev;
};

// Entropy is at most log2 of the elements of an allocation tile.
__device__ inline float BinsPerBit(uint32_t alloc_elements) {
  return static_cast<float>(kTahBins) / static_cast<float>(33 - __clz(alloc_elements));
}

// Rises with the entropy.
__device__ inline uint32_t BinOf(float entropy, float bins_per_bit) {
  const float scaled = fmaxf(entropy * bins_per_bit, 0.0f);
  return min(static_cast<uint32_t>(scaled), kTahBins - 1);
}

__device__ inline void Record(const SampleChoice& choice, uint32_t alloc, float entropy) {
  choice.entropies_dev[alloc] = entropy;
  atomicAdd(choice.histogram_dev + BinOf(entropy, choice.bins_per_bit), 1u);
}

// Sum over the block's threads before this one; *total of all. `words`: kThreads / kWarp of shared
// memory.
__device__ inline uint32_t BlockScan(uint32_t value, uint32_t* words, uint32_t* total) {
  const unsigned lane = threadIdx.x % kWarp;
  uint32_t sum = value;
#pragma unroll
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  __syncthreads();
  if (lane == kWarp - 1) words[threadIdx.x / kWarp] = sum;
  __syncthreads();
  uint32_t before = 0;
  *total = 0;
#pragma unroll
  for (unsigned warp = 0; warp < kThreads / kWarp; ++warp) {
    if (warp < threadIdx.x / kWarp) before += words[warp];
    *total += words[warp];
  }
  return before + sum - value;
}

// The bin of the threshold, and how many of its allocation tiles get 4 bits (at least one).
struct ThresholdBin {
  uint32_t bin, wanted;
};
__device__ inline ThresholdBin FindThresholdBin(const SampleChoice& choice) {
  constexpr uint32_t kPerThread = kTahBins / kThreads;
  __shared__ uint32_t words[kThreads / kWarp];
  __shared__ ThresholdBin found;
  // Thread 0 has the highest bins.
  const uint32_t highest = kTahBins - 1 - threadIdx.x * kPerThread;
  uint32_t counts[kPerThread];
  uint32_t sum = 0;
#pragma unroll
  for (uint32_t k = 0; k < kPerThread; ++k) {
    counts[k] = __ldcg(choice.histogram_dev + highest - k);
    sum += counts[k];
  }
  uint32_t total = 0;
  uint64_t above = BlockScan(sum, words, &total);
#pragma unroll
  for (uint32_t k = 0; k < kPerThread; ++k) {
    if (above < choice.fours && choice.fours <= above + counts[k]) {
      found = {highest - k, static_cast<uint32_t>(choice.fours - above)};
    }
    above += counts[k];
  }
  __syncthreads();
  const ThresholdBin result = found;
  __syncthreads();
  return result;
}

// Item `item` of kCollected allocation tiles: counts and candidates.
__device__ inline void Collect(const SampleChoice& choice, uint32_t item) {
  const ThresholdBin threshold = FindThresholdBin(choice);
  const uint64_t end = min(choice.allocs, (uint64_t{item} + 1) * kCollected);
  for (uint64_t first = item * kCollected; first < end; first += kTahGroup) {
    const uint64_t alloc = first + threadIdx.x;
    uint32_t bin = 0;
    bool candidate = false;
    bool above = false;
    if (alloc < end) {
      bin = BinOf(__ldcg(choice.entropies_dev + alloc), choice.bins_per_bit);
      candidate = bin == threshold.bin;
      above = bin > threshold.bin;
    }
    const uint32_t mask = __ballot_sync(kAllLanes, candidate);
    if (mask != 0) {
      const unsigned lane = threadIdx.x % kWarp;
      uint32_t place = 0;
      if (lane == 0) place = atomicAdd(choice.candidate_count_dev, __popc(mask));
      place = __shfl_sync(kAllLanes, place, 0) + __popc(mask & ((1u << lane) - 1));
      if (candidate) choice.candidates_dev[place] = static_cast<uint32_t>(alloc);
    }
    const int count = __syncthreads_count(above);
    if (threadIdx.x == 0) choice.group_counts_dev[first / kTahGroup] = count;
  }
}

// The threshold: the key of the last candidate that is wanted. One byte of the keys at a time, from
// the first that differs.
__device__ inline uint64_t FindThreshold(const SampleChoice& choice, uint32_t candidates,
                                         uint32_t wanted) {
  __shared__ uint32_t counts[256];
  __shared__ uint32_t words[kThreads / kWarp];
  __shared__ unsigned long long same_ones, same_zeros, last_wanted;
  __shared__ uint32_t found_digit, found_count, found_before;
  static_assert(kThreads == 256);
  const auto key_of = [&](uint32_t k) {
    const uint32_t alloc = __ldcg(choice.candidates_dev + k);
    return tah::cpu::SortKey(__ldcg(choice.entropies_dev + alloc), alloc);
  };
  if (threadIdx.x == 0) same_ones = same_zeros = ~0ull;
  __syncthreads();
  unsigned long long ones = ~0ull;
  unsigned long long zeros = ~0ull;
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    ones &= key_of(k);
    zeros &= ~key_of(k);
  }
  atomicAnd(&same_ones, ones);
  atomicAnd(&same_zeros, zeros);
  __syncthreads();
  uint64_t prefix = same_ones;
  // Above `shift` all keys that are still candidates agree with `prefix`.
  int shift = 64 - __clzll(static_cast<long long>(~(same_ones | same_zeros)));
  uint32_t left = candidates;
  while (shift > 0 && left != wanted) {
    const int digit_shift = shift > 8 ? shift - 8 : 0;
    const uint32_t digits = 1u << (shift - digit_shift);
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
      const uint64_t key = key_of(k);
      if (shift == 64 || key >> shift == prefix >> shift) {
        atomicAdd(&counts[key >> digit_shift & (digits - 1)], 1u);
      }
    }
    __syncthreads();
    const uint32_t count = counts[threadIdx.x];
    uint32_t total = 0;
    const uint32_t before = BlockScan(count, words, &total);
    if (before < wanted && wanted <= before + count) {
      found_digit = threadIdx.x;
      found_count = count;
      found_before = before;
    }
    __syncthreads();
    const uint64_t mask = uint64_t{digits - 1} << digit_shift;
    prefix = (prefix & ~mask) | uint64_t{found_digit} << digit_shift;
    wanted -= found_before;
    left = found_count;
    shift = digit_shift;
    __syncthreads();
  }
  // All that are left are wanted. What is not a candidate may share their prefix.
  const uint64_t bound = shift >= 64 ? ~0ull : prefix | ((uint64_t{1} << shift) - 1);
  unsigned long long last = 0;
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    const uint64_t key = key_of(k);
    if (key <= bound && key > last) last = key;
  }
  if (threadIdx.x == 0) last_wanted = 0;
  __syncthreads();
  atomicMax(&last_wanted, last);
  __syncthreads();
  return last_wanted;
}

// When all is collected.
__device__ inline void Select(const SampleChoice& choice) {
  const ThresholdBin bin = FindThresholdBin(choice);
  const uint32_t candidates = __ldcg(choice.candidate_count_dev);
  const uint64_t threshold = FindThreshold(choice, candidates, bin.wanted);
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    const uint32_t alloc = __ldcg(choice.candidates_dev + k);
    if (tah::cpu::SortKey(__ldcg(choice.entropies_dev + alloc), alloc) <= threshold) {
      atomicAdd(choice.group_counts_dev + alloc / kTahGroup, 1u);
    }
  }
  if (threadIdx.x == 0) *choice.threshold_dev = threshold;
  __syncthreads();
  __shared__ uint32_t words[kThreads / kWarp];
  const uint64_t groups = TahScratch::Groups(choice.allocs);
  uint32_t before = 0;
  for (uint64_t first = 0; first < groups; first += kThreads) {
    const uint64_t group = first + threadIdx.x;
    const uint32_t count = group < groups ? __ldcg(choice.group_counts_dev + group) : 0;
    uint32_t total = 0;
    const uint32_t place = BlockScan(count, words, &total);
    if (group < groups) choice.group_counts_dev[group] = before + place;
    before += total;
  }
}

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_MODULE_TAH_SELECT_CUH_
