// Random placement problems, and what can be said of them without the code that is tested.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "planner/placement.h"

namespace longhaul::coordinator {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  double Between(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(engine_() % limit); }

 private:
  std::mt19937_64 engine_;
};

struct Sizes {
  uint32_t workers, stages, layers, microbatches;
};

// Unequal speeds, memory, interfaces and pairs. Times in milliseconds, tensors of 100 KB.
inline PlacementProblem RandomProblem(const Sizes& sizes, uint64_t seed) {
  Random random(seed);
  PlacementProblem problem{
      .microbatches = sizes.microbatches, .stages = sizes.stages, .layers = sizes.layers};
  for (uint32_t w = 0; w < sizes.workers; ++w) {
    PlaceableWorker worker{.egress_bytes_per_second = random.Between(5e6, 100e6),
                           .ingress_bytes_per_second = random.Between(5e6, 100e6),
                           .down_bytes = 100e3,
                           .up_bytes = 80e3,
                           .down_encode = 1e-3,
                           .down_decode = 1e-3,
                           .up_encode = 2e-3,
                           .up_decode = 1e-3};
    const double block = random.Between(1e-3, 6e-3);
    const uint32_t holds = 1 + sizes.layers / sizes.stages + random.Below(sizes.layers);
    for (size_t role = 0; role < kChainRoles; ++role) {
      const double head = static_cast<ChainRole>(role) == ChainRole::kLast ? 3e-3 : 0;
      for (uint32_t layers = 1; layers <= sizes.layers; ++layers) {
        worker.options[role].push_back({.forward = layers * block + head,
                                        .backward = 2 * (layers * block + head),
                                        .optimizer = layers * 1e-3,
                                        .depth = layers <= holds ? sizes.microbatches : 0});
      }
    }
    problem.workers.push_back(worker);
  }
  for (uint32_t from = 0; from < sizes.workers; ++from) {
    for (uint32_t to = 0; to < sizes.workers; ++to) {
      problem.pairs.push_back(
          {.bytes_per_second = random.Between(1e6, 50e6), .latency = random.Between(1e-4, 50e-3)});
    }
  }
  // One pair that cannot talk.
  if (sizes.workers > 2) {
    const uint32_t a = random.Below(sizes.workers), b = (a + 1) % sizes.workers;
    problem.pairs[a * sizes.workers + b].may_be_joined = false;
    problem.pairs[b * sizes.workers + a].may_be_joined = false;
  }
  if (seed % 3 == 0) problem.tied_bytes = {50e3, 200e3};
  return problem;
}

// Every way to give so many layers to the stages that are left.
inline void EachSplit(uint32_t stages, uint32_t layers, std::vector<uint32_t>* split,
                      const std::function<void()>& use) {
  if (stages == 1) {
    split->push_back(layers);
    use();
    split->pop_back();
    return;
  }
  for (uint32_t own = 1; own + stages - 1 <= layers; ++own) {
    split->push_back(own);
    EachSplit(stages - 1, layers - own, split, use);
    split->pop_back();
  }
}

inline bool CanBe(const PlacementProblem& problem, const PlacedChain& chain) {
  for (uint32_t s = 0; s < problem.stages; ++s) {
    const size_t role = s == 0 ? 0 : s + 1 == problem.stages ? 2 : 1;
    if (problem.workers[chain.workers[s]].options[role][chain.layers[s] - 1].depth == 0) {
      return false;
    }
    if (s > 0 && !problem.Pair(chain.workers[s - 1], chain.workers[s]).may_be_joined) return false;
  }
  return true;
}

}  // namespace longhaul::coordinator
