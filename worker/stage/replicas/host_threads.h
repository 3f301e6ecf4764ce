// The number of threads for work in host memory between passes: the exchange between replicas, and
// the optimizer of shards (shard_optimizer.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

#include "worker/stage/stage.h"

namespace longhaul::worker {

// Returns the sum of the threads of all ranks of the stage, which are idle during this work. If the
// stage computes on GPUs or replays, returns max(this sum, min(half the machine's cores, 8)),
// because other workers may use the rest.
inline uint32_t HostThreads(const StageOptions& options) {
  constexpr uint32_t kMost = 8;
  const auto ranks = static_cast<uint32_t>(std::max<size_t>(options.ranks.size(), 1));
  const uint32_t own = options.threads * ranks;
  if (!options.device.cuda_index && !options.replay) return own;
  return std::max(own, std::min(std::thread::hardware_concurrency() / 2, kMost));
}

}  // namespace longhaul::worker
