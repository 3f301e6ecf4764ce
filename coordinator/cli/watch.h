// Follows a run until it ends.
#ifndef LONGHAUL_COORDINATOR_CLI_WATCH_H_
#define LONGHAUL_COORDINATOR_CLI_WATCH_H_

#include <string>

#include "base/status.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/program.h"

namespace longhaul::cli {

// Shows the run until it has ended or Ctrl-C comes, which leaves it running. Returns kDone, kFailed
// (failed or stopped) or kInterrupted. While the coordinator is away it waits, as training goes on
// without it.
StatusOr<int> WatchRun(Invocation& invocation, Client& client, const std::string& run);

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_WATCH_H_
