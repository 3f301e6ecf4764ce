// `longhaul generate`: generates text with a run's checkpoint, or with a folder that `longhaul
// export` wrote.
#pragma once

#include "cli/program.h"

namespace longhaul::cli {

// Adds the command `generate` to `program` (cli/program.h).
void AddGenerateCommand(Program& program);

}  // namespace longhaul::cli
