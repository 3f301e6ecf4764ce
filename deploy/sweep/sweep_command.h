// `longhaul sweep`: runs every point of a sweep file on a local cluster of its own. `longhaul
// curves` does so without shaping links, and shows losses alone.
#pragma once

#include "cli/program.h"

namespace longhaul::cli {

// Both add a command to `program` (cli/program.h), which owns the result.
CLI::App* AddSweepCommand(Program& program);
CLI::App* AddCurvesCommand(Program& program);

}  // namespace longhaul::cli
