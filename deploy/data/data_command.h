// `longhaul data prepare|show`: data sets out of texts and token files. The work is done by Python
// (longhaul_data/), because tokenizing is the PyPI package tokenizers'. This program finds both and
// becomes that Python.
#ifndef LONGHAUL_DEPLOY_DATA_DATA_COMMAND_H_
#define LONGHAUL_DEPLOY_DATA_DATA_COMMAND_H_

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}

namespace longhaul {

// Where to look. Empty: the variable is not set.
struct DataProgramSearch {
  std::filesystem::path program;  // this one's file
  std::string python;             // LONGHAUL_PYTHON
  std::string sources;            // LONGHAUL_DATA_SOURCES
  // What keeps a Python from running the sources; "" if nothing does. It may start processes.
  std::function<std::string(const std::string& python)> lacks;
};

struct DataProgram {
  std::string python;
  std::filesystem::path main;  // main.py
};

// The sources: of the variable, else ../share/longhaul/data beside the program's folder, else
// deploy/data of a folder that the program is in. The Python: of the variable, else of the
// checkout's or the installation's .deps/venv, else python3 of PATH; the first that lacks nothing.
// kFailedPrecondition names what was tried and the command that brings what is missing.
StatusOr<DataProgram> FindDataProgram(const DataProgramSearch& search);

// Becomes that Python, with these arguments. Returns only if that fails.
Status RunDataProgram(const std::vector<std::string>& arguments);

// Adds the subcommand `data` and returns it. It does not return when it succeeds; else it stores
// the exit code in `*exit_code`, which must outlive `app`.
CLI::App* AddDataCommand(CLI::App& app, int* exit_code);

}  // namespace longhaul

#endif  // LONGHAUL_DEPLOY_DATA_DATA_COMMAND_H_
