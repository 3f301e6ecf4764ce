// The commands of `longhaul` that work on this machine: cluster and sweep bring a cluster up, data
// makes data sets, and generate runs a model. With them, `steps` can log to trackers.
#pragma once

#include "cli/program.h"

namespace longhaul::cli {

// Returns the functions by which commands find the clusters of `longhaul cluster up`
// (LocalClusters, cli/client.h).
LocalClusters ClustersOfThisMachine();

void AddLocalCommands(Program& program);

}  // namespace longhaul::cli
