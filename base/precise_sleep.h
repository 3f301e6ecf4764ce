// Precise sleep, for replays of work whose duration is known. Cannot fail.
#pragma once

#include "base/clock.h"

namespace longhaul {

// Sleeps until `time`, and then until the kernel gives the thread a core. Returns at once if `time`
// has passed. Lowers the calling thread's timer slack from the usual 50 us to 1 us, permanently.
void SleepPreciselyUntil(MonoTime time);

}  // namespace longhaul
