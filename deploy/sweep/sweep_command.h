// `longhaul sweep`: runs every point of a sweep file on a local cluster of its own.
#pragma once

#include "cli/program.h"

namespace longhaul::cli {

CLI::App* AddSweepCommand(Program& program);

}  // namespace longhaul::cli
