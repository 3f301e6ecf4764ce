// Monotonic time, deadlines and the wall clock. Durations are absl::Duration (the unit is in the
// type).
#ifndef LONGHAUL_BASE_CLOCK_H_
#define LONGHAUL_BASE_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/time/time.h"

namespace longhaul {

// A point on a clock that never jumps. Pure logic takes it as an argument; shells call Now().
using MonoTime = std::chrono::steady_clock::time_point;

inline MonoTime Now() {
  return std::chrono::steady_clock::now();
}

// The machine's wall clock, for people: milliseconds since 1970. It may jump. Not absl::Now(): that
// reads the clock every two seconds only, so times after a jump would be wrong.
inline int64_t UnixMsNow() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

inline absl::Duration operator-(MonoTime later, MonoTime earlier) {
  return absl::FromChrono(
      std::chrono::duration_cast<std::chrono::nanoseconds>(later.time_since_epoch()) -
      std::chrono::duration_cast<std::chrono::nanoseconds>(earlier.time_since_epoch()));
}
inline MonoTime operator+(MonoTime time, absl::Duration duration) {
  return time + absl::ToChronoNanoseconds(duration);
}

// The end of a wait. Every wait of this project takes one.
class Deadline {
 public:
  static Deadline After(absl::Duration duration) { return Deadline(Now() + duration); }
  static Deadline At(MonoTime time) { return Deadline(time); }

  MonoTime time() const { return time_; }
  bool Expired() const { return Now() >= time_; }
  // Never negative.
  absl::Duration Remaining() const {
    return std::max(absl::ZeroDuration(), longhaul::operator-(time_, Now()));
  }

 private:
  explicit Deadline(MonoTime time) : time_(time) {}
  MonoTime time_;
};

}  // namespace longhaul

#endif  // LONGHAUL_BASE_CLOCK_H_
