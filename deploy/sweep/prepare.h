// All that is checked before a sweep starts: the sweep file, its base run, every point, the data.
#ifndef LONGHAUL_DEPLOY_SWEEP_PREPARE_H_
#define LONGHAUL_DEPLOY_SWEEP_PREPARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/terminal.h"
#include "deploy/sweep/results.h"
#include "deploy/sweep/runner.h"
#include "deploy/sweep/sweep_spec.h"

namespace longhaul::cli {

struct PreparedSweep {
  SweepSpec spec;
  SweepWorkers workers;
  std::vector<SweepJob> jobs;  // of all points, impossible ones included
  SweepResults fresh;          // of all points, waiting or impossible
};

// Errors concern the whole sweep, and name everything that is wrong in its file or base run.
// `device`: SweepWorkers'.
// kFailedPrecondition if this machine cannot have a cluster. The terminal shows the progress of
// reading the data.
StatusOr<PreparedSweep> PrepareSweep(const Terminal& terminal, Interrupt& interrupt,
                                     const std::string& file,
                                     const std::vector<std::string>& overrides,
                                     const std::string& device);

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_PREPARE_H_
