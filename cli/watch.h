// Follows a run until it ends.
#pragma once

#include <string>

#include "base/status.h"
#include "cli/client.h"
#include "cli/program.h"

namespace longhaul::cli {

// Shows the run until it has ended or the user presses Ctrl-C, after which it goes on. Returns
// kDone, kFailed (failed or stopped) or kInterrupted. While the coordinator is away it waits,
// because training goes on without it.
StatusOr<int> WatchRun(Invocation& invocation, Client& client, const std::string& run);

}  // namespace longhaul::cli
