// The daemons of a local cluster: their command lines, and how they are started and awaited.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "deploy/cluster/process.h"
#include "deploy/cluster/state_file.h"
#include "deploy/cluster/terminal.h"

namespace longhaul {

inline constexpr std::string_view kCoordinatorDaemon = "coordinator";

// Returns the absolute path of `program`. If `program` is empty, returns the path of `name` beside
// the running program. kFailedPrecondition: there is no such file, or it cannot be run.
StatusOr<std::string> FindProgram(const std::string& program, std::string_view name);

// Returns `command` inside a network namespace.
Command InNetwork(const std::string& network, Command command);

// Return full command lines. `ip netns exec` runs the daemon inside its namespace, with that
// namespace's /sys.
Command CoordinatorCommand(const ClusterState& state);
Command WorkerCommand(const ClusterState& state, const ClusterWorkerState& worker);

// Returns the path of a daemon's log: <directory>/<daemon>.log.
std::string LogPath(const ClusterState& state, std::string_view daemon);
// Returns kInternal: the daemon has died. The message has the end of its log.
Status DiedError(const ClusterState& state, std::string_view daemon);

// Start a daemon and note its process in `state` or `worker`. They do not write the state file.
Status StartCoordinator(ClusterState* state);
Status StartWorker(const ClusterState& state, ClusterWorkerState* worker);

// Waits until the coordinator answers and the worker `only` is connected. Empty `only`: waits for
// all workers; "coordinator": for no worker. Shows a progress line. Errors: DiedError of a daemon
// that it waits for, kDeadlineExceeded, or kCancelled if the user interrupts.
Status WaitUntilConnected(const ClusterState& state, std::string_view only, Deadline deadline,
                          ProgressLine* progress, InterruptGuard* interrupts);

}  // namespace longhaul
