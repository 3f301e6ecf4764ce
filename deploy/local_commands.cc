#include "deploy/local_commands.h"

#include <CLI/CLI.hpp>

#include "deploy/cluster/cluster_command.h"
#include "deploy/data/data_command.h"
#include "deploy/generate_command.h"
#include "deploy/sweep/sweep_command.h"

namespace longhaul::cli {

void AddLocalCommands(Program& program) {
  AddGenerateCommand(program);
  program.RefuseConnectionFlags(AddSweepCommand(program), /*json_too=*/false);
  program.RefuseConnectionFlags(AddClusterCommand(program.app(), program.exit_code()),
                                /*json_too=*/true);
  program.RefuseConnectionFlags(AddDataCommand(program.app(), program.exit_code()),
                                /*json_too=*/true);
}

}  // namespace longhaul::cli
