// longhaul: what people type.
#include "base/log.h"
#include "base/private_files.h"
#include "cli/program.h"
#include "deploy/local_commands.h"

int main(int argc, char** argv) {
  longhaul::KeepFilesPrivate();
  // What libraries have to say goes to standard error, beside the program's own messages.
  if (!longhaul::InitLogging("warn").ok()) return longhaul::cli::kFailed;
  longhaul::cli::Program program(longhaul::cli::ProcessTerminal(),
                                 longhaul::cli::ClustersOfThisMachine());
  longhaul::cli::AddLocalCommands(program);
  return program.Run(argc, argv);
}
