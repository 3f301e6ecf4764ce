// Waits for SIGINT and SIGTERM instead of letting them end the process.
#pragma once

#include "absl/time/time.h"

namespace longhaul {

// Blocks SIGINT and SIGTERM in this thread and in threads that it starts later, and ignores SIGPIPE
// in the whole process. Call it first in main().
void BlockShutdownSignals();
// Waits for SIGINT or SIGTERM, at most `limit`. Returns the signal's number, or 0 if neither came.
// Only one thread may wait.
int WaitForShutdownSignal(absl::Duration limit);

}  // namespace longhaul
