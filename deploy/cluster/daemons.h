// The daemons of a local cluster: their command lines, how to start them, and how to wait for them.
// Threads: the program's main thread (process.h).
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

// Returns a command that runs `command` inside the network namespace `network`.
Command InNetwork(const std::string& network, Command command);

// Each returns the full command line of one daemon. A command line begins with `ip netns exec`, so
// the daemon runs inside its network namespace and sees the /sys of this namespace.
Command CoordinatorCommand(const ClusterState& state);
Command WorkerCommand(const ClusterState& state, const ClusterWorkerState& worker);

// Returns the path of a daemon's log: <directory>/<daemon>.log.
std::string LogPath(const ClusterState& state, std::string_view daemon);
// Returns the error for a daemon that has died: kInternal, with the last lines of the daemon's log.
Status DiedError(const ClusterState& state, std::string_view daemon);

// Each starts one daemon and stores the daemon's process in `*state` or `*worker`. Neither waits
// until the daemon is ready, and neither writes the state file. Errors: as StartDaemon (process.h).
Status StartCoordinator(ClusterState* state);
Status StartWorker(const ClusterState& state, ClusterWorkerState* worker);

// Waits until the coordinator answers and the worker `only` is connected. Empty `only`: waits for
// all workers. "coordinator": waits for no worker. Shows the state in `progress`, which must not be
// null. Errors: DiedError if the coordinator or an awaited worker has died, kDeadlineExceeded, or
// kCancelled if `interrupts` (not null) has seen a signal.
Status WaitUntilConnected(const ClusterState& state, std::string_view only, Deadline deadline,
                          ProgressLine* progress, InterruptGuard* interrupts);

}  // namespace longhaul
