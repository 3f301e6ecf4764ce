// An event that happens once, and for which threads wait. Uses std types, because ThreadSanitizer
// does not see into Abseil's shared library and would report every wait as a race.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace longhaul {

// Thread-safe. May be destroyed as soon as a wait has returned. Further calls of Notify do nothing.
class Notification {
 public:
  void Notify() {
    const std::lock_guard lock(mutex_);
    happened_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return happened_; });
  }
  // Waits at most `limit`, which must be finite. False: the event has not happened yet.
  bool WaitFor(absl::Duration limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] { return happened_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
};

}  // namespace longhaul
