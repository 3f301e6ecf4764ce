// Where `longhaul steps` sends a run's steps beside the terminal and files: to experiment trackers
// (W&B, MLflow). The library deploy implements this, because a Python program does the work.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cli/interrupt.h"

namespace longhaul::cli {

// An empty text: not that one.
struct StepLogTargets {
  std::string wandb;   // --wandb: PROJECT or ENTITY/PROJECT
  std::string mlflow;  // --mlflow: the tracking URI
};

// Trackers that are open for one run. Threads: one. Errors of all methods have a message for
// people; after an error call nothing more. kCancelled: interrupted.
//
// Lines are JSON objects without a line feed: {"run": {...}} describes the run and comes first, and
// again whenever the description has changed; every other line is a step as `steps --json` prints
// it. An empty line says that there are no more steps for now, so that those before it are sent.
class StepLog {
 public:
  // Does not wait. Without Close, trackers still get the lines that were written.
  virtual ~StepLog() = default;
  virtual Status Write(std::string_view line) = 0;
  // Waits until the trackers have all lines. Returns a line for each tracker: what it has got.
  virtual StatusOr<std::string> Close() = 0;
};

// Opens the trackers. `run_line` is the first line. Returns once all trackers are ready. `where`
// gets a line for each tracker: where people find the run. `interrupt` must outlive the result.
using StartStepLog = StatusOr<std::unique_ptr<StepLog>> (*)(const StepLogTargets& targets,
                                                            const std::string& run_line,
                                                            Interrupt& interrupt,
                                                            std::string* where);

// Sets the function by which `steps` opens trackers, for the whole process. Until then --wandb and
// --mlflow are refused. Call it before a command runs.
void SetStartStepLog(StartStepLog start);

}  // namespace longhaul::cli
