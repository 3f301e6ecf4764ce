// Who goes first on a worker's line: tensors of boundaries, for which stages wait in the middle of
// their passes. Messages between replicas take what these leave. Thread-safe.
#ifndef LONGHAUL_WORKER_PIPELINE_WIRE_TURNS_H_
#define LONGHAUL_WORKER_PIPELINE_WIRE_TURNS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace longhaul::worker {

class WireTurns {
 public:
  // A port has tensors on their way to its peer; and has them no more.
  void Begin() { ++busy_; }
  void End() {
    if (--busy_ > 0) return;
    const std::lock_guard lock(mutex_);
    for (const auto& quiet : when_quiet_) quiet();
  }
  bool busy() const { return busy_ > 0; }
  // `quiet` is called whenever the last of them has arrived: on any thread, with a port's lock held
  // and this one's, so it calls neither of the two. Before the first Begin.
  void CallWhenQuiet(std::function<void()> quiet) {
    const std::lock_guard lock(mutex_);
    when_quiet_.push_back(std::move(quiet));
  }

 private:
  std::atomic<uint32_t> busy_ = 0;
  std::mutex mutex_;
  std::vector<std::function<void()>> when_quiet_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_WIRE_TURNS_H_
