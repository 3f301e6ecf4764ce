// One kernel for encoders that need all of a sample before they can write any of it: blocks take
// items of work in one order, in which the phases of a sample follow each other at some distance,
// so that no block waits long and a sample is still in the L2 cache when it is read again.
//
// Work gives
//   static constexpr int kPhases;
//   uint32_t Lag(int phase);                    samples between phase 0 and this one
//   uint32_t Items(int phase);                  of every sample, above 0
//   void Run(int phase, uint32_t sample, uint32_t item);       by a whole block
//   void Finish(int phase, uint32_t sample);    by the block that ended the phase's last item
// A phase begins when the one before it has finished. What other blocks wrote in this kernel is
// read with __ldcg or atomics: the first-level caches do not see it.
//
// No deadlock: an item depends on items before it alone, and of those that are not done the first
// is with a block that is running it.
#pragma once

#include <cstdint>

namespace longhaul::codec::cuda {

// In zeroed memory: the number of items taken, and of those done for every sample and phase, plus
// one when the phase has finished.
struct PipelineCounters {
  unsigned long long* taken_dev;
  uint32_t* done_dev;
};

// Samples between the first phase and the last one: enough items between them that no block waits
// (`items` of every sample, taken by `blocks` at once), as far as what lies between stays in the
// cache.
inline uint32_t PipelineLag(uint64_t items, unsigned blocks, uint64_t sample_bytes) {
  constexpr uint64_t kRounds = 4;
  constexpr uint64_t kCacheBytes = 24 << 20;
  const uint64_t wanted = kRounds * blocks / items + 2;
  const uint64_t fit = kCacheBytes / (sample_bytes + 1) + 1;
  return static_cast<uint32_t>(wanted < fit ? wanted : fit);
}

template <class Work>
__device__ void RunPipeline(Work& work, uint32_t samples, const PipelineCounters& counters) {
  constexpr int kPhases = Work::kPhases;
  __shared__ unsigned long long shared_item;
  __shared__ bool shared_last;
  uint32_t items_of_step = 0;
  for (int phase = 0; phase < kPhases; ++phase) items_of_step += work.Items(phase);
  const uint64_t steps = uint64_t{samples} + work.Lag(kPhases - 1);
  // The next item is asked for before this one is worked on.
  unsigned long long next = 0;
  if (threadIdx.x == 0) next = atomicAdd(counters.taken_dev, 1ull);
  while (true) {
    if (threadIdx.x == 0) {
      shared_item = next;
      next = atomicAdd(counters.taken_dev, 1ull);
    }
    __syncthreads();
    const uint64_t step = shared_item / items_of_step;
    auto item = static_cast<uint32_t>(shared_item - step * items_of_step);
    if (step >= steps) return;
    int phase = 0;
    while (item >= work.Items(phase)) item -= work.Items(phase++);
    if (step < work.Lag(phase) || step - work.Lag(phase) >= samples) {
      __syncthreads();
      continue;
    }
    const auto sample = static_cast<uint32_t>(step - work.Lag(phase));
    uint32_t* const done = counters.done_dev + uint64_t{sample} * kPhases;
    if (phase > 0 && threadIdx.x == 0) {
      const uint32_t finished = work.Items(phase - 1) + 1;
      while (*const_cast<volatile uint32_t*>(done + phase - 1) != finished) __nanosleep(40);
      __threadfence();
    }
    __syncthreads();
    work.Run(phase, sample, item);
    __syncthreads();
    if (phase + 1 == kPhases) continue;
    if (threadIdx.x == 0) {
      __threadfence();
      shared_last = atomicAdd(done + phase, 1u) + 1 == work.Items(phase);
      __threadfence();
    }
    __syncthreads();
    if (!shared_last) continue;
    work.Finish(phase, sample);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(done + phase, 1u);
    }
  }
}

}  // namespace longhaul::codec::cuda
