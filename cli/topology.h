// Emulates the topology of a run file on a local cluster, for `submit` and `plan`.
#pragma once

#include "base/status.h"
#include "cli/client.h"
#include "cli/terminal.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {

// kFailedPrecondition if the run names a topology and `access` is no local cluster of this machine:
// nothing else can emulate one.
Status CheckTopology(const RunSpec& spec, const CoordinatorAccess& access);

// Sets the local cluster's links to the run's topology, and says so. Without a topology the links
// stay as they are.
Status EmulateTopology(const Terminal& terminal, const RunSpec& spec,
                       const CoordinatorAccess& access, const LocalClusters& clusters);

}  // namespace longhaul::cli
