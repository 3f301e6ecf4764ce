// Checks everything before a sweep (sweep_spec.h) starts: the sweep file, its base run, every point
// (points.h), the data.
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
  SweepPlan plan;  // impossible points included
  // Path and text of the base run's file. If the sweep file has the run, base_file is its path.
  std::string base_file, base_text;
  std::string title;
  std::vector<std::string> devices;  // of each worker, as its flag --device has them
  // Names and texts of everything that decides the points: ("rates", "1gbit, 100mbit"), ("the base
  // run", its text with all defaults), ("the data", a hash). An interrupted sweep is continued only
  // if all these texts are the same.
  std::vector<std::pair<std::string, std::string>> identity;
};

// Reads and checks the sweep file `file`. `overrides` change the base run, in the form of --set.
// `device` is the device of the workers, as in `cluster up --device`. `may_shape`: false refuses a
// sweep with rates. `terminal` shows the progress
// of reading the data. If only a point is wrong, its `impossible` says why, without an error.
// kInvalidArgument: the sweep file or the base run is wrong; the message names all faults.
// kFailedPrecondition: this machine cannot run a cluster. kCancelled: `interrupt` has fired. Errors
// of reading files: by errno.
StatusOr<PreparedSweep> PrepareSweep(const Terminal& terminal, Interrupt& interrupt,
                                     const std::string& file,
                                     const std::vector<std::string>& overrides,
                                     const std::string& device, bool may_shape = true);

// Returns the input of the program that runs the sweep (longhaul_sweep/): a JSON object. Its points
// have the fields of points in results.json (docs/design/formats.md), and all fields that running a
// point needs.
std::string ToJson(const PreparedSweep& sweep);

}  // namespace longhaul::cli
