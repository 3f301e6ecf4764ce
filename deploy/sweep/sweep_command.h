// `longhaul sweep`: runs every point of a sweep file on a local cluster of its own.
#pragma once

#include "cli/program.h"

namespace longhaul::cli {

// Adds the command `sweep` to `program` (cli/program.h), which owns the result.
CLI::App* AddSweepCommand(Program& program);

}  // namespace longhaul::cli
