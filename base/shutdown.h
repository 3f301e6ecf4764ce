// SIGINT and SIGTERM as something to wait for.
#ifndef LONGHAUL_BASE_SHUTDOWN_H_
#define LONGHAUL_BASE_SHUTDOWN_H_

#include "absl/time/time.h"

namespace longhaul {

// Blocks SIGINT, SIGTERM (and SIGPIPE) in this thread and in those it starts later. Call first in
// main().
void BlockShutdownSignals();
// Waits for SIGINT or SIGTERM, at most `limit`; the signal's number, or 0 when the limit passed.
// From one thread.
int WaitForShutdownSignal(absl::Duration limit);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_SHUTDOWN_H_
