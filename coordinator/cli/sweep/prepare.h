// All that is checked before a sweep starts: the sweep file, its base run, every point, the data.
#ifndef LONGHAUL_COORDINATOR_CLI_SWEEP_PREPARE_H_
#define LONGHAUL_COORDINATOR_CLI_SWEEP_PREPARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/config/sweep_spec.h"
#include "base/status.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/sweep/results.h"
#include "coordinator/cli/sweep/runner.h"
#include "coordinator/cli/terminal.h"

namespace longhaul::cli {

struct PreparedSweep {
  SweepSpec spec;
  SweepWorkers workers;
  std::vector<SweepJob> jobs;  // of all points; those that are impossible say so
  SweepResults fresh;          // of all points, waiting or impossible
};

// Errors are of the sweep as a whole, with all that is wrong in its file or its base run.
// `device`: SweepWorkers'.
// kFailedPrecondition where this machine can have no cluster. Progress of reading the data goes to
// the terminal.
StatusOr<PreparedSweep> PrepareSweep(const Terminal& terminal, Interrupt& interrupt,
                                     const std::string& file,
                                     const std::vector<std::string>& overrides,
                                     const std::string& device);

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_SWEEP_PREPARE_H_
