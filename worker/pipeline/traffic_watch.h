// Whether tensors of a stage are on their way over this worker's links, so that what can wait, such
// as copies of checkpoints, waits for them. Thread-safe.
#ifndef LONGHAUL_WORKER_PIPELINE_TRAFFIC_WATCH_H_
#define LONGHAUL_WORKER_PIPELINE_TRAFFIC_WATCH_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace longhaul::worker {

class TrafficWatch {
 public:
  // A port has tensors on their way, in one direction; and has them no more.
  void Begin() {
    const std::lock_guard lock(mutex_);
    ++busy_;
  }
  void End() {
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) changed_.notify_all();
  }
  // Until no tensor is on its way, but no longer than `until`.
  void AwaitQuiet(MonoTime until) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.wait_until(lock, until, [this] { return busy_ == 0; });
    --waiting_;
  }
  // How many threads are in AwaitQuiet.
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

#endif  // LONGHAUL_WORKER_PIPELINE_TRAFFIC_WATCH_H_
