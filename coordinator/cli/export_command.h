// `longhaul export`: a checkpoint as a folder that transformers loads.
#ifndef LONGHAUL_COORDINATOR_CLI_EXPORT_COMMAND_H_
#define LONGHAUL_COORDINATOR_CLI_EXPORT_COMMAND_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "coordinator/cli/program.h"

namespace longhaul::cli {

struct ExportOptions {
  std::string run;    // its id, or a name: its newest run
  uint64_t step = 0;  // 0: the newest checkpoint that is not damaged
  std::string out;    // the folder, which is not there yet
  // "fp32", "bf16", "fp16", or that of the weights it began with, of adapters fp32.
  std::string type = "auto";
  // Of a run with LoRA: the whole model with its adapters added, instead of these alone.
  bool merged = false;
};

// Gives the exit code. Where it fails there is no new folder.
StatusOr<int> ExportRun(Invocation& invocation, const ExportOptions& options);

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_EXPORT_COMMAND_H_
