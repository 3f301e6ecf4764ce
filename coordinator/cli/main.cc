#include "base/log.h"
#include "coordinator/cli/program.h"

int main(int argc, char** argv) {
  // What libraries have to say goes to standard error, beside the program's own messages.
  if (!longhaul::InitLogging("warn").ok()) return longhaul::cli::kFailed;
  return longhaul::cli::Program(longhaul::cli::ProcessTerminal()).Run(argc, argv);
}
