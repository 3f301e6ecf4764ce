// `longhaul cluster up|down|status|link|kill|start`: a local cluster for trying things. The
// coordinator and N workers run in network namespaces of their own. A bridge connects the
// namespaces, and tc shapes its links (network.h has the layout).
#pragma once

#include <string>

// Only declared here: files that add options include <CLI/CLI.hpp>, which takes seconds to compile.
namespace CLI {
class App;
}

namespace longhaul {

// Adds the subcommand `cluster` to the program and returns it. Its subcommands run inside
// app.parse() and store the program's exit code in `*exit_code` (0 done, 1 failed, 130
// interrupted). `exit_code` must outlive `app`, which owns the result.
//
//   int exit_code = 0;
//   CLI::App app;
//   AddClusterCommand(app, &exit_code);
//   CLI11_PARSE(app, argc, argv);
//   return exit_code;
CLI::App* AddClusterCommand(CLI::App& app, int* exit_code);

// Adds the option --device (ClusterUpOptions::device) to a command that brings a cluster up.
// `device` must outlive `command`.
void AddWorkerDevices(CLI::App* command, std::string* device);

}  // namespace longhaul
