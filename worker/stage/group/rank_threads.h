// One thread for each rank of a group. All calls of a rank run on the rank's thread, because
// LibTorch keeps the current stream and the number of threads for each thread separately.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace longhaul::worker {

class RankThreads {
 public:
  using Work = std::function<Status(uint32_t rank)>;

  explicit RankThreads(uint32_t ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Runs `work` on all threads at the same time, waits for all, and returns their results by rank.
  // `work` must not throw. Only one call of Run at a time.
  std::vector<Status> Run(const Work& work);

 private:
  void Serve(uint32_t rank);

  std::mutex mutex_;
  std::condition_variable changed_;
  const Work* work_ = nullptr;
  uint64_t calls_ = 0;
  uint32_t busy_ = 0;
  bool closing_ = false;
  std::vector<Status> results_;
  std::vector<std::jthread> threads_;
};

}  // namespace longhaul::worker
