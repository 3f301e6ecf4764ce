// Step 2 of tah/format.h: finds the allocation tiles of a sample that get 4 bits, without sorting.
//
// 1. Record counts each entropy in a histogram. FindBin finds the bin that holds the threshold.
// 2. Allocation tiles in higher bins get 4 bits, allocation tiles in lower bins get 3. Those in the
//    bin, and in SampleChoice::margin bins on either side, are collected as candidates.
// 3. Select compares the candidates' sort keys (entropy, index), and finds the exact threshold.
// The result is exact for any entropies. The search is fast if each bin has few allocation tiles,
// as is the case for real tensors.
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/tah/cpu/entropy.h"

namespace longhaul::codec::cuda {

// Groups and allocation tiles that a block handles in one call of Collect.
inline constexpr int kCollectedGroups = 2;
inline constexpr uint64_t kCollected = kCollectedGroups * kTahGroup;

// The bins of the histogram. The entropy of an allocation tile is at most log2 of its elements, and
// most entropies lie within two bits below this limit. So most bins lie there, too: the bins are
// narrow above `knee` and wide below.
struct Bins {
  static constexpr float kCoarse = 600;
  static constexpr float kFinePerBit = 1700;
  float knee, coarse_per_bit;

  // Returns the bin of an entropy. A higher entropy never has a lower bin.
  __device__ uint32_t BinOf(float entropy) const {
    const float coarse = fmaxf(entropy * coarse_per_bit, 0.0f);
    const float fine = (entropy - knee) * kFinePerBit + kCoarse;
    return min(static_cast<uint32_t>(fmaxf(coarse, fine)), kTahBins - 1);
  }
  // Returns approximately the lowest entropy of a bin.
  __device__ float BeginningOf(uint32_t bin) const {
    const auto number = static_cast<float>(bin);
    return number < kCoarse ? number / coarse_per_bit : knee + (number - kCoarse) / kFinePerBit;
  }
};
__device__ inline Bins MakeBins(uint32_t alloc_elements) {
  const auto knee = static_cast<float>(30 - __clz(static_cast<int>(alloc_elements - 1)));
  return {knee, Bins::kCoarse / knee};
}

// The bin of the threshold, and how many of the candidates get 4 bits (at least one).
struct ThresholdBin {
  uint32_t bin, wanted;
};

// The search for one sample. The pointers are to the sample's parts of TahScratch.
struct SampleChoice {
  uint64_t allocs, fours;  // allocation tiles, and how many get 4 bits; 0 < fours < allocs
  Bins bins;
  // Bins on either side of the threshold's bin whose allocation tiles are candidates, too. 0: the
  // recorded entropies are exact. 1: they are estimates, wrong by up to half a bin.
  uint32_t margin;
  float* entropies_dev;     // recorded entropies, by allocation tile
  uint32_t* histogram_dev;  // indexed by PlaceOfBin
  ThresholdBin* bin_dev;    // result of FindBin
  // Sort keys (CandidateKey) of the candidates, in any order, and their number.
  uint64_t* candidates_dev;
  uint32_t* candidate_count_dev;
  // For each group of group_size allocation tiles: how many get 4 bits. After Select: how many get
  // 4 bits in all groups before.
  uint32_t group_size;
  uint32_t* group_counts_dev;
  uint64_t* threshold_dev;  // result of Select: candidates with keys up to this one get 4 bits
};

// Returns an integer that rises as the entropy falls. EntropyOfFalling is the inverse.
__device__ inline uint32_t FallingEntropy(float entropy) {
  return static_cast<uint32_t>(tah::cpu::SortKey(entropy)) ^ 0x80000000;
}
__device__ inline float EntropyOfFalling(uint32_t falling) {
  const uint32_t sorted = falling ^ 0x80000000;
  return __uint_as_float((sorted & 0x80000000) != 0 ? ~sorted : sorted | 0x80000000);
}
// Returns the sort key of an allocation tile: by falling entropy, then by rising index.
__device__ inline uint64_t CandidateKey(float entropy, uint32_t alloc) {
  return uint64_t{FallingEntropy(entropy)} << 32 | alloc;
}
__device__ inline float EntropyOfKey(uint64_t key) {
  return EntropyOfFalling(static_cast<uint32_t>(key >> 32));
}

// Returns the index of a bin's counter in the histogram. Most tiles fall into a few neighbouring
// bins. Their counters lie far apart in memory, so that the counting uses all parts of the cache.
__device__ inline uint32_t PlaceOfBin(uint32_t bin) {
  constexpr uint32_t kRow = 64;
  return bin % kRow * (kTahBins / kRow) + bin / kRow;
}

// Stores the entropy of an allocation tile, and counts it in the histogram.
__device__ inline void Record(const SampleChoice& choice, uint32_t alloc, float entropy) {
  choice.entropies_dev[alloc] = entropy;
  atomicAdd(choice.histogram_dev + PlaceOfBin(choice.bins.BinOf(entropy)), 1u);
}

// Returns the sum of `value` over all earlier threads of the block. *total: the sum over the block.
// All threads must call it. `words`: kThreads / kWarp words of shared memory.
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

// The counts of a histogram in device memory, indexed by bin.
struct BinCounts {
  __device__ uint32_t operator[](uint32_t bin) const {
    return __ldcg(histogram_dev + PlaceOfBin(bin));
  }

  const uint32_t* histogram_dev;
};

// Finds the bin of the k-th highest entropy. counts[bin] is the number of entropies in a bin. All
// threads of the block must call the methods.
class RankedBins {
 public:
  template <class Counts>
  __device__ explicit RankedBins(const Counts& counts) {
    __shared__ uint32_t words[kThreads / kWarp];
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t k = 0; k < kPerThread; ++k) {
      mine_[k] = counts[lowest_ + k];
      sum += mine_[k];
    }
    above_ = BlockScan(sum, words, &total_);
    end_ = above_ + sum;
  }

  // Finds the bin of the entropy with this rank; the highest entropy has rank 1. One thread calls
  // found(bin, number of entropies in higher bins). No thread does if there are fewer entropies.
  template <class Found>
  __device__ void Find(uint64_t rank, Found&& found) const {
    if (rank <= above_ || rank > end_) return;
    uint32_t bin = lowest_ + kPerThread;
    uint32_t above = above_;
    uint32_t count = 0;
#pragma unroll
    for (int k = kPerThread - 1; k >= 0; --k) {
      if (above + count < rank) {
        above += count;
        count = mine_[k];
        --bin;
      }
    }
    found(bin, above);
  }

 private:
  static constexpr uint32_t kPerThread = kTahBins / kThreads;

  // Thread 0 has the highest bins.
  const uint32_t lowest_ = (kThreads - 1 - threadIdx.x) * kPerThread;
  uint32_t mine_[kPerThread];
  uint32_t above_, end_, total_;
};

// Finds the bin of the threshold, and writes it to *result. All threads of the block must call it.
template <class Counts>
__device__ inline void FindBin(const Counts& counts, uint64_t fours, uint32_t margin,
                               ThresholdBin* result) {
  RankedBins(counts).Find(fours, [&](uint32_t bin, uint32_t above) {
    for (uint32_t k = bin + 1; k <= bin + margin && k < kTahBins; ++k) above -= counts[k];
    *result = {bin, static_cast<uint32_t>(fours) - above};
  });
}

// As above, with the histogram in memory, when all entropies of the sample are recorded.
__device__ inline void FindBin(const SampleChoice& choice, ThresholdBin* result) {
  FindBin(BinCounts{choice.histogram_dev}, choice.fours, choice.margin, result);
}

// Returns 0 if a recorded entropy makes its allocation tile a candidate, -1 if the entropy is too
// low, and 1 if it is higher than those of all candidates.
__device__ inline int BesideCandidates(const SampleChoice& choice, uint32_t threshold_bin,
                                       float entropy) {
  const auto bin = static_cast<int>(choice.bins.BinOf(entropy));
  const int distance = bin - static_cast<int>(threshold_bin);
  const auto margin = static_cast<int>(choice.margin);
  return distance > margin ? 1 : distance < -margin ? -1 : 0;
}

// Appends the keys of a warp's candidates. `alloc`: the lane's allocation tile. `candidate`:
// whether this tile is a candidate. All lanes must call it.
__device__ inline void PutCandidates(const SampleChoice& choice, uint64_t alloc, float entropy,
                                     bool candidate) {
  const unsigned lane = threadIdx.x % kWarp;
  const uint32_t mask = __ballot_sync(kAllLanes, candidate);
  if (mask == 0) return;
  uint32_t place = 0;
  if (lane == 0) place = atomicAdd(choice.candidate_count_dev, __popc(mask));
  place = __shfl_sync(kAllLanes, place, 0);
  if (candidate) {
    choice.candidates_dev[place + __popc(mask & ((1u << lane) - 1))] =
        CandidateKey(entropy, static_cast<uint32_t>(alloc));
  }
}

// Collects the candidates of kCollected allocation tiles, from number item * kCollected on, and
// counts the tiles above the candidates in group_counts_dev. All threads of the block must call it.
__device__ inline void Collect(const SampleChoice& choice, uint32_t item) {
  static_assert(kThreads == kTahGroup);
  const uint32_t threshold_bin = __ldcg(&choice.bin_dev->bin);
  const uint64_t group = uint64_t{item} * kCollectedGroups;
  float entropies[kCollectedGroups];
#pragma unroll
  for (int k = 0; k < kCollectedGroups; ++k) {
    const uint64_t alloc = (group + k) * kTahGroup + threadIdx.x;
    entropies[k] = alloc < choice.allocs ? __ldcg(choice.entropies_dev + alloc) : 0.0f;
  }
#pragma unroll
  for (int k = 0; k < kCollectedGroups; ++k) {
    const uint64_t alloc = (group + k) * kTahGroup + threadIdx.x;
    const bool there = alloc < choice.allocs;
    const int beside = BesideCandidates(choice, threshold_bin, entropies[k]);
    const int above = __syncthreads_count(there && beside > 0);
    if (threadIdx.x == 0 && there) choice.group_counts_dev[group + k] = above;
    PutCandidates(choice, alloc, entropies[k], there && beside == 0);
  }
}

__device__ inline uint64_t WarpAnd(uint64_t value) {
  const uint32_t high = __reduce_and_sync(kAllLanes, static_cast<uint32_t>(value >> 32));
  return uint64_t{high} << 32 | __reduce_and_sync(kAllLanes, static_cast<uint32_t>(value));
}

// Returns the threshold: the `wanted`-th lowest of the candidates' keys. Finds one byte of the key
// at a time, from the first byte in which keys differ. All threads of the block must call it.
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
#pragma unroll 4
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    ones &= keys[k];
    zeros &= ~keys[k];
  }
  ones = WarpAnd(ones);
  zeros = WarpAnd(zeros);
  if (threadIdx.x % kWarp == 0) {
    atomicAnd(&same_ones, ones);
    atomicAnd(&same_zeros, zeros);
  }
  __syncthreads();
  uint64_t prefix = same_ones;
  // All keys that may still be the threshold agree with `prefix` in the bits from `shift` on.
  int shift = 64 - __clzll(static_cast<long long>(~(same_ones | same_zeros)));
  uint32_t left = candidates;
  while (shift > 0 && left != wanted) {
    const int digit_shift = shift > 8 ? shift - 8 : 0;
    const uint32_t digits = 1u << (shift - digit_shift);
    counts[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 4
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
  // All keys that are left are wanted. The threshold must be the key of a candidate, because keys
  // of other allocation tiles may have the same prefix.
  const uint64_t bound = shift >= 64 ? ~0ull : prefix | ((uint64_t{1} << shift) - 1);
  unsigned long long last = 0;
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    const uint64_t key = keys[k];
    if (key <= bound && key > last) last = key;
  }
  if (threadIdx.x == 0) last_wanted = 0;
#pragma unroll
  for (int distance = 1; distance < static_cast<int>(kWarp); distance *= 2) {
    last = max(last, __shfl_xor_sync(kAllLanes, last, distance));
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) atomicMax(&last_wanted, last);
  __syncthreads();
  return last_wanted;
}

// As FindThreshold, for at most kFewKeys keys in shared memory, which must have room for kFewKeys.
// Finds the key that has wanted - 1 lower keys, by comparing all pairs.
inline constexpr uint32_t kFewKeys = 2 * kThreads;
__device__ inline uint64_t FindThresholdOfFew(uint64_t* shared_keys, uint32_t candidates,
                                              uint32_t wanted) {
  __shared__ uint64_t found;
  // kLanes lanes share the comparisons of a key; each lane does kTogether at a time.
  constexpr uint32_t kLanes = 4;
  constexpr uint32_t kTogether = 8;
  // Pads with the highest key, which is lower than no key, so that loops need no bounds check.
  constexpr uint32_t kPadding = kLanes * kTogether;
  const uint32_t padded = (candidates + kPadding - 1) / kPadding * kPadding;
  if (candidates + threadIdx.x < padded) shared_keys[candidates + threadIdx.x] = ~uint64_t{0};
  __syncthreads();
  const uint64_t* const of_lane = shared_keys + threadIdx.x % kLanes;
  for (uint32_t first = 0; first < candidates; first += kThreads / kLanes) {
    const uint32_t k = first + threadIdx.x / kLanes;
    const uint64_t key = shared_keys[min(k, candidates - 1)];
    uint32_t below = 0;
    for (uint32_t other = 0; other < padded; other += kPadding) {
#pragma unroll
      for (uint32_t j = 0; j < kTogether; ++j) below += of_lane[other + j * kLanes] < key ? 1 : 0;
    }
    below += __shfl_xor_sync(kAllLanes, below, 1);
    below += __shfl_xor_sync(kAllLanes, below, 2);
    if (below + 1 == wanted) found = key;
  }
  __syncthreads();
  return found;
}

// Counts a candidate that gets 4 bits in its group.
__device__ inline void CountFour(const SampleChoice& choice, uint64_t key) {
  atomicAdd(choice.group_counts_dev + static_cast<uint32_t>(key) / choice.group_size, 1u);
}
// Counts all candidates up to the threshold.
__device__ inline void CountFours(const SampleChoice& choice, const uint64_t* keys,
                                  uint32_t candidates, uint64_t threshold) {
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    if (keys[k] <= threshold) CountFour(choice, keys[k]);
  }
}

// As FindThreshold and CountFours, for many keys of the bins around `bin`. Counts the keys in finer
// bins, so that few keys are in the threshold's fine bin. `shared`: kTahBins uint32 of shared
// memory. All threads of the block must call it.
__device__ inline uint64_t FindThresholdOfMany(const SampleChoice& choice, uint32_t bin,
                                               const uint64_t* keys, uint32_t candidates,
                                               uint32_t wanted, uint64_t* shared) {
  __shared__ uint32_t found_bin, found_above, gathered;
  const uint32_t first = FallingEntropy(choice.bins.BeginningOf(bin + choice.margin + 1));
  const uint32_t last =
      FallingEntropy(choice.bins.BeginningOf(bin > choice.margin ? bin - choice.margin : 0));
  const float per_bin = static_cast<float>(kTahBins) / static_cast<float>(last - first + 1);
  // The highest entropies are in the highest bins. Bins are approximate, but keep the keys' order.
  const auto fine_bin = [&](uint64_t key) {
    const auto falling = static_cast<uint32_t>(key >> 32);
    const float place = static_cast<float>(falling > first ? falling - first : 0) * per_bin;
    return kTahBins - 1 - min(static_cast<uint32_t>(place), kTahBins - 1);
  };
  auto* const counts = reinterpret_cast<uint32_t*>(shared);
  for (uint32_t k = threadIdx.x; k < kTahBins; k += kThreads) counts[k] = 0;
  if (threadIdx.x == 0) gathered = 0;
  __syncthreads();
#pragma unroll 16
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    atomicAdd(counts + fine_bin(__ldcg(keys + k)), 1u);
  }
  __syncthreads();
  RankedBins(counts).Find(wanted, [&](uint32_t of_rank, uint32_t above) {
    found_bin = of_rank;
    found_above = above;
  });
  __syncthreads();
  if (counts[found_bin] > kFewKeys) {
    const uint64_t threshold = FindThreshold(keys, candidates, wanted);
    CountFours(choice, keys, candidates, threshold);
    return threshold;
  }
  __syncthreads();
#pragma unroll 16
  for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
    const uint64_t key = __ldcg(keys + k);
    const uint32_t of_key = fine_bin(key);
    if (of_key == found_bin) shared[atomicAdd(&gathered, 1u)] = key;
    if (of_key > found_bin) CountFour(choice, key);
  }
  __syncthreads();
  const uint64_t threshold = FindThresholdOfFew(shared, gathered, wanted - found_above);
  CountFours(choice, shared, gathered, threshold);
  return threshold;
}

// When all candidates of a sample are collected: finds the threshold, and turns group_counts_dev
// into sums over earlier groups. `bin`: from FindBin. `shared`: kTahBins uint32 of shared memory.
// All threads of the block must call it.
__device__ inline void Select(const SampleChoice& choice, const ThresholdBin& bin,
                              uint64_t* shared) {
  const uint32_t candidates = __ldcg(choice.candidate_count_dev);
  const uint64_t* const keys = choice.candidates_dev;  // not in this processor's L1 cache yet
  uint64_t threshold = 0;
  if (candidates <= kFewKeys) {
    for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) shared[k] = __ldcg(keys + k);
    __syncthreads();
    threshold = FindThresholdOfFew(shared, candidates, bin.wanted);
    CountFours(choice, shared, candidates, threshold);
  } else {
    threshold = FindThresholdOfMany(choice, bin.bin, keys, candidates, bin.wanted, shared);
  }
  if (threadIdx.x == 0) *choice.threshold_dev = threshold;
  __syncthreads();
  __shared__ uint32_t words[kThreads / kWarp];
  const uint64_t groups = (choice.allocs + choice.group_size - 1) / choice.group_size;
  uint32_t before = 0;
  constexpr uint32_t kPerThread = 8;
  for (uint64_t first = threadIdx.x * kPerThread; first - threadIdx.x * kPerThread < groups;
       first += kThreads * kPerThread) {
    uint32_t counts[kPerThread];
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t k = 0; k < kPerThread; ++k) {
      counts[k] = first + k < groups ? __ldcg(choice.group_counts_dev + first + k) : 0;
      sum += counts[k];
    }
    uint32_t total = 0;
    uint32_t place = before + BlockScan(sum, words, &total);
#pragma unroll
    for (uint32_t k = 0; k < kPerThread; ++k) {
      if (first + k < groups) choice.group_counts_dev[first + k] = place;
      place += counts[k];
    }
    before += total;
  }
}

}  // namespace longhaul::codec::cuda
