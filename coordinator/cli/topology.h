// The topology of a run file, for `submit` and `plan`.
#ifndef LONGHAUL_COORDINATOR_CLI_TOPOLOGY_H_
#define LONGHAUL_COORDINATOR_CLI_TOPOLOGY_H_

#include "base/status.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/terminal.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {

// kFailedPrecondition if the run names a topology and `access` is not of a local cluster on this
// machine: nothing else can emulate one.
Status CheckTopology(const RunSpec& spec, const CoordinatorAccess& access);

// Sets the links of the local cluster to the run's topology, and says so. Without a topology the
// links stay.
Status EmulateTopology(const Terminal& terminal, const RunSpec& spec,
                       const CoordinatorAccess& access);

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_TOPOLOGY_H_
