// Threads for what is computed in host memory between passes: what replicas exchange, and their
// optimizer of pieces.
#ifndef LONGHAUL_WORKER_STAGE_HOST_THREADS_H_
#define LONGHAUL_WORKER_STAGE_HOST_THREADS_H_

#include <algorithm>
#include <cstdint>
#include <thread>

#include "worker/stage/stage.h"

namespace longhaul::worker {

// The stage's own, of all its ranks: these stand still meanwhile. Where it computes on GPUs, or a
// replay sleeps, half of the machine's cores, up to eight: other workers may run there.
inline uint32_t HostThreads(const StageOptions& options) {
  constexpr uint32_t kMost = 8;
  const auto ranks = static_cast<uint32_t>(std::max<size_t>(options.ranks.size(), 1));
  const uint32_t own = options.threads * ranks;
  if (!options.device.cuda_index && !options.replay) return own;
  return std::max(own, std::min(std::thread::hardware_concurrency() / 2, kMost));
}

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_HOST_THREADS_H_
