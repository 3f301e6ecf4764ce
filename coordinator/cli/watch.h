// Following a run until it ends.
#ifndef LONGHAUL_COORDINATOR_CLI_WATCH_H_
#define LONGHAUL_COORDINATOR_CLI_WATCH_H_

#include <string>

#include "base/status.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/program.h"

namespace longhaul::cli {

// Shows the run until it has ended or Ctrl-C comes (which leaves it running). kDone when it is
// done, kFailed when it failed or was stopped, kInterrupted. A coordinator that goes away for some
// time is waited for: training goes on without it.
StatusOr<int> WatchRun(Invocation& invocation, Client& client, const std::string& run);

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_WATCH_H_
