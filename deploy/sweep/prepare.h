// Checks everything before a sweep starts: the sweep file, its base run, every point, the data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "deploy/sweep/points.h"
#include "deploy/sweep/sweep_spec.h"

namespace longhaul::cli {

struct PreparedSweep {
  SweepSpec spec;
  SweepPlan plan;                    // impossible points included
  std::string base_file, base_text;  // the base run
  std::string title;
  // Everything that decides the points: ("rates", "1gbit, 100mbit"), ("the base run", its text with
  // all defaults), ("the data", hashes). A sweep is continued only if all of it is the same.
  std::vector<std::pair<std::string, std::string>> identity;
};

// Reads and checks the sweep file `file`. `overrides` change the base run. `device` is the device
// of the workers, as in `cluster up --device`. The terminal shows the progress of reading the data.
// An error concerns the whole sweep, and names all faults in its file or base run.
// kFailedPrecondition: this machine cannot run a cluster.
StatusOr<PreparedSweep> PrepareSweep(const Terminal& terminal, Interrupt& interrupt,
                                     const std::string& file,
                                     const std::vector<std::string>& overrides,
                                     const std::string& device);

// Returns the input of the sweep's runner (longhaul_sweep/): a JSON object. Its points have the
// fields of points in results.json (docs/design/formats.md), and what is needed to run them.
std::string ToJson(const PreparedSweep& sweep);

}  // namespace longhaul::cli
