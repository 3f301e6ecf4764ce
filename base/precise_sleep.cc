#include "base/precise_sleep.h"

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

namespace longhaul {

void SleepPreciselyUntil(MonoTime time) {
  constexpr unsigned long kSlackNs = 1000;
  thread_local const bool precise = ::prctl(PR_SET_TIMERSLACK, kSlackNs, 0, 0, 0) == 0;
  (void)precise;  // where it was refused, sleeping is less precise
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec until{static_cast<time_t>(time.nanoseconds() / kSecond),
                       static_cast<long>(time.nanoseconds() % kSecond)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace longhaul
