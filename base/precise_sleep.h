// Sleeping to the point, for whatever stands in for work of a known length.
#ifndef LONGHAUL_BASE_PRECISE_SLEEP_H_
#define LONGHAUL_BASE_PRECISE_SLEEP_H_

#include "base/clock.h"

namespace longhaul {

// Returns at `time` or as soon after as the kernel gives the thread a core: lowers the calling
// thread's timer slack from the usual 50 us to 1 us, for good. Returns at once for a time that has
// passed.
void SleepPreciselyUntil(MonoTime time);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_PRECISE_SLEEP_H_
