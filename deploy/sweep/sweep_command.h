// `longhaul sweep`.
#ifndef LONGHAUL_DEPLOY_SWEEP_SWEEP_COMMAND_H_
#define LONGHAUL_DEPLOY_SWEEP_SWEEP_COMMAND_H_

#include "coordinator/cli/program.h"

namespace longhaul::cli {

CLI::App* AddSweepCommand(Program& program);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_SWEEP_COMMAND_H_
