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

// Allocation tiles that a block collects at a time: a group for every warp.
inline constexpr uint64_t kCollected = kThreads / kWarp * kTahGroup;

// The bin of the threshold, and how many of its allocation tiles get 4 bits (at least one).
struct ThresholdBin {
  uint32_t bin, wanted;
};

struct SampleChoice {
  uint64_t allocs, fours;  // 0 < fours < allocs
  float bins_per_bit;
  float* entropies_dev;
  uint32_t* histogram_dev;
  ThresholdBin* bin_dev;
  // Sort keys.
  uint64_t* candidates_dev;
  uint32_t* candidate_count_dev;
  // Of each group of kTahGroup: how many get 4 bits; in the end how many before the group do.
  uint32_t* group_counts_dev;
  uint64_t* threshold_dev;
};

// Sorts by falling entropy, then by rising index.
__device__ inline uint64_t CandidateKey(float entropy, uint32_t alloc) {
  const uint32_t rising = static_cast<uint32_t>(tah::cpu::SortKey(entropy)) ^ 0x80000000;
  return uint64_t{rising} << 32 | alloc;
}

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

// When all entropies are recorded.
__device__ inline void FindBin(const SampleChoice& choice) {
  constexpr uint32_t kPerThread = kTahBins / kThreads;
  __shared__ uint32_t words[kThreads / kWarp];
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
      *choice.bin_dev = {highest - k, static_cast<uint32_t>(choice.fours - above)};
    }
    above += counts[k];
  }
}

// Item `item` of kCollected allocation tiles: counts and candidates.
__device__ inline void Collect(const SampleChoice& choice, uint32_t item) {
  const uint32_t threshold_bin = __ldcg(&choice.bin_dev->bin);
  const unsigned lane = threadIdx.x % kWarp;
  const uint64_t group = uint64_t{item} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const uint64_t first = group * kTahGroup;
  if (first >= choice.allocs) return;
  constexpr int kRounds = kTahGroup / kWarp;
  float entropies[kRounds];
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    const uint64_t alloc = first + k * kWarp + lane;
    entropies[k] = alloc < choice.allocs ? __ldcg(choice.entropies_dev + alloc) : 0.0f;
  }
  uint32_t above = 0;
  uint32_t masks[kRounds];
  uint32_t candidates = 0;
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    const bool there = first + k * kWarp + lane < choice.allocs;
    const uint32_t bin = BinOf(entropies[k], choice.bins_per_bit);
    above += __popc(__ballot_sync(kAllLanes, there && bin > threshold_bin));
    masks[k] = __ballot_sync(kAllLanes, there && bin == threshold_bin);
    candidates += __popc(masks[k]);
  }
  if (lane == 0) choice.group_counts_dev[group] = above;
  if (candidates == 0) return;
  uint32_t place = 0;
  if (lane == 0) place = atomicAdd(choice.candidate_count_dev, candidates);
  place = __shfl_sync(kAllLanes, place, 0);
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    if ((masks[k] >> lane & 1) != 0) {
      const auto alloc = static_cast<uint32_t>(first + k * kWarp + lane);
      choice.candidates_dev[place + __popc(masks[k] & ((1u << lane) - 1))] =
          CandidateKey(entropies[k], alloc);
    }
    place += __popc(masks[k]);
  }
}

// The threshold: the key of the last candidate that is wanted. One byte of the keys at a time, from
// the first that differs.
__device__ inline uint64_t FindThreshold(const uint64_t* keys, uint32_t candidates,
                                         uint32_t wanted) {
  __shared__ uint32_t counts[256];
  __shared__ uint32_t words[kThreads / kWarp];
  __shared__ unsigned long long same_ones, same_zeros, last_wanted;
  __shared__ uint32_t found_digit, found_count, found_before;
  static_assert(kThreads == 256);
  if (threadIdx.x == 0) same_ones = same_zeros = ~0ull;
  __syncthreads();
  unsigned long long ones = ~0ull;
  unsigned long long zeros = ~0ull;
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    ones &= keys[k];
    zeros &= ~keys[k];
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
      const uint64_t key = keys[k];
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
    const uint64_t key = keys[k];
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
  constexpr uint32_t kMostShared = 1024;
  __shared__ uint64_t shared_keys[kMostShared];
  const uint32_t wanted = __ldcg(&choice.bin_dev->wanted);
  const uint32_t candidates = __ldcg(choice.candidate_count_dev);
  const uint64_t* keys = choice.candidates_dev;  // no cache of this processor has seen them
  if (candidates <= kMostShared) {
    for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) shared_keys[k] = __ldcg(keys + k);
    keys = shared_keys;
    __syncthreads();
  }
  const uint64_t threshold = FindThreshold(keys, candidates, wanted);
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    if (keys[k] <= threshold) {
      atomicAdd(choice.group_counts_dev + (keys[k] & 0xffffffff) / kTahGroup, 1u);
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
