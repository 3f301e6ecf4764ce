// The clock of the state machine's ticks. It stands still while the process or its machine is
// stopped, because a stopped process hears from no worker and must not blame the workers. Such a
// stop shows as a tick that begins more than 1 s late after a tick that was in time. If the tick
// before was late too, the machine is only slow, and the clock goes on. Not thread-safe.
#pragma once

#include <optional>

#include "base/clock.h"

namespace longhaul::coordinator {

class TickClock {
 public:
  // `now`: the time on the machine's clock, here and in Begin.
  explicit TickClock(MonoTime now) : last_(now), now_(now) {}

  // Begins a tick. If the process was stopped since the previous tick, returns the time since that
  // tick began; else 0. After End(MonoTime::max()) no stop is noticed.
  absl::Duration Begin(MonoTime now);
  // Ends the tick. `wake`: when the next tick is due, on this clock; MonoTime::max(): never.
  // Returns the same time on the machine's clock; nullopt: never.
  std::optional<MonoTime> End(MonoTime wake);

  // The time of the current tick.
  MonoTime now() const { return now_; }
  // Total time for which the process was stopped.
  absl::Duration asleep() const { return asleep_; }

 private:
  MonoTime last_;  // last tick, on the machine's clock
  MonoTime now_;
  absl::Duration asleep_;
  std::optional<MonoTime> wake_;  // requested by the last tick
  bool was_late_ = false;         // the last tick began late
};

}  // namespace longhaul::coordinator
