// Gives tensors between stages priority on a worker's line, because stages wait for them in the
// middle of their passes. Messages between replicas use the remaining time. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace longhaul::worker {

class WireTurns {
 public:
  // A port calls Begin when its first tensor to the peer is in flight, and End when none is any
  // more.
  void Begin() { ++busy_; }
  void End() {
    if (--busy_ > 0) return;
    const std::lock_guard lock(mutex_);
    for (const auto& quiet : when_quiet_) quiet();
  }
  // Returns true if a tensor of at least one port is in flight. Takes no lock.
  bool busy() const { return busy_ > 0; }
  // Registers `quiet`, which is called each time that the last tensor in flight has been taken by
  // its peer. `quiet` runs on any thread, under the locks of a port and of this object. So it must
  // not call boundary ports, and of this object only busy(). Register it before the first Begin.
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
