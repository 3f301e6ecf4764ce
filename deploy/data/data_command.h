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

// Adds the subcommand `data` to `app`, which owns the result. Running the subcommand replaces this
// process by Python. If this fails, the subcommand stores the program's exit code in `*exit_code`,
// which must outlive `app`.
CLI::App* AddDataCommand(CLI::App& app, int* exit_code);

}  // namespace longhaul
