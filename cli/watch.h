// Follows a run until it ends.
#pragma once

#include <string>

#include "base/status.h"
#include "cli/client.h"
#include "cli/program.h"

namespace longhaul::cli {

// Shows the run until the run has ended or the user presses Ctrl-C, which does not stop the run.
// `run`: a run's id or name. Returns kDone, kFailed (the run failed or was stopped) or
// kInterrupted. If the coordinator goes away, keeps trying for 5 minutes, because workers train on
// without a coordinator; then returns the error.
StatusOr<int> WatchRun(Invocation& invocation, Client& client, const std::string& run);

}  // namespace longhaul::cli
