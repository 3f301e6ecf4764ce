// What `submit` and `plan` do about the topology of a run file.
#ifndef LONGHAUL_COORDINATOR_CLI_TOPOLOGY_H_
#define LONGHAUL_COORDINATOR_CLI_TOPOLOGY_H_

#include "base/status.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/terminal.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {

// kFailedPrecondition where the run names a topology and `access` is not to the coordinator of
// a local cluster of this machine: nothing else can emulate one.
Status CheckTopology(const RunSpec& spec, const CoordinatorAccess& access);

// Makes the links of the local cluster those of the run's topology, and says so. Without one the
// links stay.
Status EmulateTopology(const Terminal& terminal, const RunSpec& spec,
                       const CoordinatorAccess& access);

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_TOPOLOGY_H_
