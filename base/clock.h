// Monotonic time, deadlines and the wall clock. Durations are absl::Duration (the unit is in the
// type). Nothing here fails. Thread-safe.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace longhaul {

// A point in time on a clock that never jumps. Pure functions take it as an argument; only the code
// around them calls Now().
class MonoTime {
 public:
  // The zero of the clock, before every Now().
  constexpr MonoTime() = default;
  static constexpr MonoTime FromNanoseconds(int64_t since_beginning) {
    MonoTime time;
    time.nanoseconds_ = since_beginning;
    return time;
  }
  // Before and after every time that Now() returns. A deadline at max() never expires.
  static constexpr MonoTime min() { return FromNanoseconds(std::numeric_limits<int64_t>::min()); }
  static constexpr MonoTime max() { return FromNanoseconds(std::numeric_limits<int64_t>::max()); }

  // Time since the zero of the kernel's CLOCK_MONOTONIC.
  constexpr int64_t nanoseconds() const { return nanoseconds_; }
  // Returns the same time for the wait functions of the standard library.
  std::chrono::steady_clock::time_point ToChrono() const {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(nanoseconds_));
  }

  friend constexpr auto operator<=>(MonoTime, MonoTime) = default;
  friend absl::Duration operator-(MonoTime later, MonoTime earlier) {
    return absl::Nanoseconds(later.nanoseconds_) - absl::Nanoseconds(earlier.nanoseconds_);
  }
  // Gives max() or min() if the sum overflows.
  friend MonoTime operator+(MonoTime time, absl::Duration duration) {
    int64_t sum = 0;
    if (__builtin_add_overflow(time.nanoseconds_, absl::ToInt64Nanoseconds(duration), &sum)) {
      return duration > absl::ZeroDuration() ? max() : min();
    }
    return FromNanoseconds(sum);
  }
  MonoTime& operator+=(absl::Duration duration) { return *this = *this + duration; }

 private:
  int64_t nanoseconds_ = 0;
};

// Returns the current time by the kernel's CLOCK_MONOTONIC.
inline MonoTime Now() {
  return MonoTime::FromNanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                       std::chrono::steady_clock::now().time_since_epoch())
                                       .count());
}

// Returns the current time by the kernel's CLOCK_BOOTTIME. Unlike Now(), it includes the time that
// the machine was suspended, so do not compare it with Now().
inline MonoTime BootNow() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return MonoTime::FromNanoseconds(int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec);
}

// Returns the wall clock in milliseconds since 1970, for people. The wall clock may jump. Does not
// use absl::Now(), which reads the clock only every two seconds and is wrong after a jump.
inline int64_t UnixMsNow() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The time at which a wait gives up. Functions that wait take a Deadline.
class Deadline {
 public:
  // `duration` from now. Zero or less: has expired already. Infinite: never expires.
  static Deadline After(absl::Duration duration) { return Deadline(Now() + duration); }
  static Deadline At(MonoTime time) { return Deadline(time); }

  MonoTime time() const { return time_; }
  bool Expired() const { return Now() >= time_; }
  // The time left, never negative.
  absl::Duration Remaining() const { return std::max(absl::ZeroDuration(), time_ - Now()); }

 private:
  explicit Deadline(MonoTime time) : time_(time) {}
  MonoTime time_;
};

}  // namespace longhaul
