// Follows a run until it ends.
#pragma once

#include <string>

#include "base/status.h"
#include "cli/client.h"
#include "cli/program.h"

namespace longhaul::cli {

// Shows the run until it has ended or Ctrl-C comes, which leaves it running. Returns kDone, kFailed
// (failed or stopped) or kInterrupted. While the coordinator is away it waits, as training goes on
// without it.
StatusOr<int> WatchRun(Invocation& invocation, Client& client, const std::string& run);

}  // namespace longhaul::cli
