// The commands of `longhaul` that bring their own cluster up on this machine: cluster, sweep.
#ifndef LONGHAUL_DEPLOY_LOCAL_COMMANDS_H_
#define LONGHAUL_DEPLOY_LOCAL_COMMANDS_H_

#include "coordinator/cli/program.h"

namespace longhaul::cli {

void AddLocalCommands(Program& program);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_LOCAL_COMMANDS_H_
