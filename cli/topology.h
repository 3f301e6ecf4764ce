// Emulates the topology of a run file on a local cluster, for `submit` and `plan`.
#pragma once

#include "base/status.h"
#include "cli/client.h"
#include "cli/terminal.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {

// Returns kFailedPrecondition if the run names a topology (regions of workers, and the rates and
// delays between them) and the coordinator is not that of a local cluster on this machine, because
// only such a cluster can emulate a topology.
Status CheckTopology(const RunSpec& spec, const CoordinatorAccess& access);

// Sets the links of the local cluster to the run's topology, and tells the user. Does nothing for a
// run without a topology. Errors: those of CheckTopology and of LocalClusters::apply_topology.
Status EmulateTopology(const Terminal& terminal, const RunSpec& spec,
                       const CoordinatorAccess& access, const LocalClusters& clusters);

}  // namespace longhaul::cli
