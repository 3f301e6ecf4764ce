// `longhaul cluster ...` alone, so that its tests need nothing else of the `longhaul` program.
#include <CLI/CLI.hpp>

#include "deploy/cluster/cluster_command.h"

int main(int argc, char** argv) {
  CLI::App app("longhaul, its cluster commands");
  int exit_code = 0;
  longhaul::AddClusterCommand(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
