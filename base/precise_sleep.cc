#include "base/precise_sleep.h"

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

namespace longhaul {

void SleepPreciselyUntil(MonoTime time) {
  constexpr unsigned long kSlackNs = 1000;
  thread_local const bool precise = ::prctl(PR_SET_TIMERSLACK, kSlackNs, 0, 0, 0) == 0;
  (void)precise;  // where it was refused, sleeping is less precise
  // The standard library's steady clock is this one, since the same moment.
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const timespec until{
      static_cast<time_t>(seconds.count()),
      static_cast<long>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count())};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace longhaul
