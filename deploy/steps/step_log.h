// `longhaul steps --wandb --mlflow`: the trackers of cli/steps_command.h. A Python program
// (longhaul_steps/) does the work, because W&B and MLflow are Python packages. It is a child of
// this process: lines go to its standard input, and its answers come from its standard output.
#pragma once

#include <memory>
#include <string>

#include "cli/steps_command.h"
#include "deploy/python_program.h"

namespace longhaul::cli {

// Describes longhaul_steps/ for FindPythonProgram: the packages that `targets` need.
PythonPart StepsPart(const StepLogTargets& targets);

// Implements cli::StartStepLog. Starts processes: call it from the main thread. The child inherits
// the environment and standard error, and has a process group of its own, so that Ctrl-C does not
// end it before it has sent the last steps.
StatusOr<std::unique_ptr<StepLog>> StartPythonStepLog(const StepLogTargets& targets,
                                                      const std::string& run_line,
                                                      Interrupt& interrupt, std::string* where);

}  // namespace longhaul::cli
