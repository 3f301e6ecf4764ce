// Turns SIGINT and SIGTERM into something to wait for.
#pragma once

#include "absl/time/time.h"

namespace longhaul {

// Blocks SIGINT, SIGTERM and SIGPIPE in this thread and in threads that it starts later. Call it
// first in main().
void BlockShutdownSignals();
// Waits for SIGINT or SIGTERM, at most `limit`. Gives the signal's number, or 0 at the limit. One
// thread only.
int WaitForShutdownSignal(absl::Duration limit);

}  // namespace longhaul
