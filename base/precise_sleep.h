// Precise sleep, for replays of work whose duration is known.
#ifndef LONGHAUL_BASE_PRECISE_SLEEP_H_
#define LONGHAUL_BASE_PRECISE_SLEEP_H_

#include "base/clock.h"

namespace longhaul {

// Returns at `time`, or once the kernel gives the thread a core after that; at once if `time` has
// passed. Lowers the calling thread's timer slack from the usual 50 us to 1 us, for good.
void SleepPreciselyUntil(MonoTime time);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_PRECISE_SLEEP_H_
