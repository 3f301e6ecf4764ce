// Calls a function when a time limit passes. Needed because a thread blocked in a CUDA call cannot
// check a deadline (docs/gotchas/gpu.md).
//
//   Watchdog watchdog([&] { communicator.Abort(...); });
//   watchdog.Arm(limit); ... watchdog.Disarm();
//
// Arm and Disarm must be called by one thread; each costs one store. If the limit passes before
// Disarm, `expired` runs on the watchdog's thread, once for each Arm, up to 50 ms late. An infinite
// limit never passes. The destructor waits for `expired` if it is running.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace longhaul::collective {

class Watchdog {
 public:
  explicit Watchdog(std::function<void()> expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void Arm(absl::Duration limit);
  // Ends the limit set by Arm. Returns true if it is too late: `expired` has run or runs now.
  bool Disarm();

 private:
  void Watch();

  const std::function<void()> expired_;
  // Nanoseconds of the steady clock.
  static constexpr int64_t kNever = INT64_MAX, kExpired = INT64_MAX - 1;
  std::atomic<int64_t> deadline_ = kNever;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::collective
