// `longhaul data prepare|show`: makes data sets from texts and token files. Python (longhaul_data/)
// does the work, because tokenizing needs the PyPI package tokenizers. This program finds both and
// becomes that Python (exec).
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

// Where to search. Empty: the variable is not set.
struct DataProgramSearch {
  std::filesystem::path program;  // this program's file
  std::string python;             // LONGHAUL_PYTHON
  std::string sources;            // LONGHAUL_DATA_SOURCES
  // Says what keeps a Python from running the sources; "": nothing. May start processes.
  std::function<std::string(const std::string& python)> lacks;
};

struct DataProgram {
  std::string python;
  std::filesystem::path main;  // main.py
};

// Finds the sources: by the variable, else ../share/longhaul/data beside the program's folder, else
// deploy/data in a folder above the program. Finds the first usable Python: by the variable, else
// .deps/venv of the checkout or installation, else python3 in PATH. kFailedPrecondition names what
// was tried and the command that installs what is missing.
StatusOr<DataProgram> FindDataProgram(const DataProgramSearch& search);

// Becomes that Python with these arguments. Returns only on failure.
Status RunDataProgram(const std::vector<std::string>& arguments);

// Adds the subcommand `data` and returns it. It does not return when it succeeds; else it stores
// the exit code in `*exit_code`, which must outlive `app`.
CLI::App* AddDataCommand(CLI::App& app, int* exit_code);

}  // namespace longhaul

#endif  // LONGHAUL_DEPLOY_DATA_DATA_COMMAND_H_
