// `longhaul sweep`.
#pragma once

#include "cli/program.h"

namespace longhaul::cli {

CLI::App* AddSweepCommand(Program& program);

}  // namespace longhaul::cli
