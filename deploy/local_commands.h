// The commands of `longhaul` that work on this machine: cluster and sweep bring a cluster up, data
// makes data sets.
#ifndef LONGHAUL_DEPLOY_LOCAL_COMMANDS_H_
#define LONGHAUL_DEPLOY_LOCAL_COMMANDS_H_

#include "coordinator/cli/program.h"

namespace longhaul::cli {

LocalClusters ClustersOfThisMachine();

void AddLocalCommands(Program& program);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_LOCAL_COMMANDS_H_
