#include "coordinator/state/ledger/tick_clock.h"

#include <utility>

namespace longhaul::coordinator {
namespace {

// A tick that comes this long after its time shows that the process was stopped, or its machine.
constexpr absl::Duration kLate = absl::Seconds(1);

}  // namespace

absl::Duration TickClock::Begin(MonoTime now) {
  const absl::Duration since = now - std::exchange(last_, now);
  const bool is_late = wake_ && now - *wake_ - asleep_ > kLate;
  // Only a stop makes one tick late; a machine that is too slow makes many, and has to go on.
  const bool was_stopped = is_late && !was_late_;
  was_late_ = is_late;
  if (was_stopped) asleep_ += since;
  now_ = now + -asleep_;
  return was_stopped ? since : absl::ZeroDuration();
}

std::optional<MonoTime> TickClock::End(MonoTime wake) {
  wake_ = wake == MonoTime::max() ? std::nullopt : std::optional(wake);
  return wake_ ? std::optional(*wake_ + asleep_) : std::nullopt;
}

}  // namespace longhaul::coordinator
