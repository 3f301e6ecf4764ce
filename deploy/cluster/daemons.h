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

// The absolute path of `program`, or if empty, of `name` beside the running program.
// kFailedPrecondition if there is no such file.
StatusOr<std::string> FindProgram(const std::string& program, std::string_view name);

// Returns `command` inside a network namespace.
Command InNetwork(const std::string& network, Command command);

// Full command lines, run inside the right namespace by `ip netns exec`, which also gives the
// daemon a /sys of that namespace.
Command CoordinatorCommand(const ClusterState& state);
Command WorkerCommand(const ClusterState& state, const ClusterWorkerState& worker);

// <directory>/<daemon>.log
std::string LogPath(const ClusterState& state, std::string_view daemon);
// Returns an error that says that the daemon has died, with the end of its log.
Status DiedError(const ClusterState& state, std::string_view daemon);

// Start a daemon and note its process in `state`, which is not written to disk.
Status StartCoordinator(ClusterState* state);
Status StartWorker(const ClusterState& state, ClusterWorkerState* worker);

// Waits until the coordinator answers and `only` (if empty, all workers) is connected. Shows a
// progress line. Returns an error if a daemon dies (with the end of its log), the deadline passes
// or the user interrupts.
Status WaitUntilConnected(const ClusterState& state, std::string_view only, Deadline deadline,
                          ProgressLine* progress, InterruptGuard* interrupts);

}  // namespace longhaul
