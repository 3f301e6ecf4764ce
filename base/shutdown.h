// Waits for SIGINT and SIGTERM instead of letting them end the process.
#pragma once

#include "absl/time/time.h"

namespace longhaul {

// Blocks SIGINT and SIGTERM in this thread and in threads that it starts later, and ignores SIGPIPE
// in the whole process. Call BlockShutdownSignals first in main().
void BlockShutdownSignals();
// Waits for SIGINT or SIGTERM, at most `limit`, after BlockShutdownSignals. Returns the signal's
// number. Returns 0 if neither came, or if another signal interrupted the wait. Only one thread may
// wait.
int WaitForShutdownSignal(absl::Duration limit);

}  // namespace longhaul
