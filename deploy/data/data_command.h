// `longhaul data prepare|show`: makes data sets from texts and token files. Python (longhaul_data/)
// does the work, because tokenizing needs the PyPI package tokenizers.
#pragma once

#include "deploy/python_program.h"

namespace CLI {
class App;
}

namespace longhaul {

PythonPart DataPart();

// Adds the subcommand `data` and returns it. It does not return when it succeeds; else it stores
// the exit code in `*exit_code`, which must outlive `app`.
CLI::App* AddDataCommand(CLI::App& app, int* exit_code);

}  // namespace longhaul
