// Tells whether tensors are in flight over this worker's links. Less urgent transfers, for example
// copies of checkpoints, wait until no tensor is in flight. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace longhaul::worker {

class TrafficWatch {
 public:
  // A port calls Begin when the first tensor of a direction (sending or receiving) is in flight,
  // and End when no tensor of this direction is in flight any more.
  void Begin() {
    const std::lock_guard lock(mutex_);
    ++busy_;
  }
  void End() {
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) changed_.notify_all();
  }
  // Blocks until no tensor is in flight, but at most until `until`.
  void AwaitQuiet(MonoTime until) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.wait_until(lock, until.ToChrono(), [this] { return busy_ == 0; });
    --waiting_;
  }
  // Number of threads in AwaitQuiet.
  uint64_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t busy_ = 0, waiting_ = 0;
};

}  // namespace longhaul::worker
