// The clock of the state machine's ticks. It stands still while the process or its machine is
// stopped, because a stopped process hears from no worker and must not blame the workers. A tick
// that is more than 1 s late shows such a stop. Not thread-safe.
#pragma once

#include <optional>

#include "base/clock.h"

namespace longhaul::coordinator {

class TickClock {
 public:
  // `now` is the machine's clock, here and in Begin.
  explicit TickClock(MonoTime now) : last_(now), now_(now) {}

  // Begins a tick. Returns for how long the process was stopped before this tick; 0: not stopped.
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
  bool was_late_ = false;
};

}  // namespace longhaul::coordinator
