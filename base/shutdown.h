// Waits for SIGINT and SIGTERM instead of letting them end the process.
#pragma once

#include "absl/time/time.h"

namespace longhaul {

// Blocks SIGINT, SIGTERM and SIGPIPE in this thread and in threads that it starts later. Call it
// first in main().
void BlockShutdownSignals();
// Waits for SIGINT or SIGTERM, at most `limit`. Returns the signal's number, or 0 at the limit.
// Threads: one.
int WaitForShutdownSignal(absl::Duration limit);

}  // namespace longhaul
