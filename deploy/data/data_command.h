// `longhaul data prepare|show`: makes data sets from texts and token files. Python (longhaul_data/)
// does the work, because tokenizing needs the PyPI package tokenizers.
#pragma once

#include "deploy/python_program.h"

namespace CLI {
class App;
}

namespace longhaul {

// Describes longhaul_data/ for RunPythonProgram.
PythonPart DataPart();

// Adds the subcommand `data` and returns it. Running the subcommand replaces this process by
// Python. If that fails, the exit code goes to `*exit_code`, which must outlive `app`.
CLI::App* AddDataCommand(CLI::App& app, int* exit_code);

}  // namespace longhaul
