// `longhaul generate`: generates text with a run's checkpoint, or with a folder that `longhaul
// export` wrote.
#ifndef LONGHAUL_DEPLOY_GENERATE_COMMAND_H_
#define LONGHAUL_DEPLOY_GENERATE_COMMAND_H_

#include "coordinator/cli/program.h"

namespace longhaul::cli {

void AddGenerateCommand(Program& program);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_GENERATE_COMMAND_H_
