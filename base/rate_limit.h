// A token bucket: limits the rate of events, but lets a burst of them pass at once. Pure; not
// thread-safe.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace longhaul {

class RateLimit {
 public:
  // `burst` is the number of events that may come at once. `per_second` and `burst` must be above
  // zero. The bucket starts full.
  RateLimit(double per_second, double burst)
      : per_second_(per_second), burst_(burst), left_(burst) {}

  // Counts one event at `now`, also if the event comes too early. Returns how long to wait before
  // the next event; zero: the next one may come at once. `events`: counts as so many, which may be
  // more than a burst.
  absl::Duration Take(MonoTime now, double events = 1) {
    if (last_ != MonoTime()) {
      const double seconds = absl::ToDoubleSeconds(now - last_);
      left_ = std::min(burst_, left_ + std::max(0.0, seconds) * per_second_);
    }
    last_ = now;
    left_ -= events;
    return left_ >= 1 ? absl::ZeroDuration() : absl::Seconds((1 - left_) / per_second_);
  }

 private:
  const double per_second_, burst_;
  double left_;
  MonoTime last_{};
};

}  // namespace longhaul
