// Runs an encoder in one kernel although the encoder must read a whole sample before it can write
// any part of the sample. The work on a sample has phases, and a phase has items. Thread blocks
// take items in one order for the whole tensor. In this order the phases of a sample are several
// samples apart (Lag), so that blocks seldom wait, but the sample is still in the L2 cache when a
// later phase reads the sample again.
//
// A class Work has
//   static constexpr int kPhases;
//   uint32_t Lag(int phase);    samples between phase 0 and this phase in the order of items
//   uint32_t Items(int phase);  items of each sample in this phase, more than 0
//   void Run(int phase, uint32_t sample, uint32_t item);  does an item; all threads of a block call
//   void Finish(int phase, uint32_t sample);  ends a phase, except the last phase; all threads of
//                                             the block that did the phase's last open item call
// A phase of a sample begins when Finish of the phase before has returned. Read what other blocks
// of this kernel wrote with __ldcg or atomics, because first-level caches are not coherent.
//
// There is no deadlock: an item waits only for items that come before it in the order. So the first
// item that is not done never waits, and a block has already taken this item.
#pragma once

#include <cstdint>

namespace longhaul::codec::cuda {

// Counters in device memory, zeroed before the kernel.
struct PipelineCounters {
  unsigned long long* taken_dev;  // number of items that blocks have taken
  // kPhases words for each sample: the phase's items that are done, plus 1 after Finish.
  uint32_t* done_dev;
};

// Returns a Lag for the last phase: so many samples that no block waits, but no more than fit into
// the cache. `items`: items of a sample, in all phases before the last one. `blocks`: thread blocks
// that run at the same time. `sample_bytes`: size of a sample's elements.
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
  // A block takes its next item before it works on the current one, so that it need not wait.
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
