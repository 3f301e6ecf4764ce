// `longhaul export`: a checkpoint as a folder that transformers loads.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "cli/program.h"

namespace longhaul::cli {

struct ExportOptions {
  std::string run;    // its id, or a name, which means its newest run
  uint64_t step = 0;  // 0: the newest undamaged checkpoint
  std::string out;    // the folder; must not exist
  // "fp32", "bf16", "fp16" or "auto": the type of the original weights; fp32 for adapters.
  std::string type = "auto";
  // For a run with LoRA: exports the whole model with its adapters merged in; false: only the
  // adapters.
  bool merged = false;
};

// Returns the exit code. On failure it leaves no new folder.
StatusOr<int> ExportRun(Invocation& invocation, const ExportOptions& options);

}  // namespace longhaul::cli
