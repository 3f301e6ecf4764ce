// `longhaul export`: writes a checkpoint as a folder that the Python package transformers loads, or
// as one of longhaul's, on this machine, on a hub, or in S3 or Google Cloud Storage.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "cli/program.h"

namespace longhaul::cli {

struct ExportOptions {
  std::string run;    // a run's id, or a name: the newest run of that name
  uint64_t step = 0;  // 0: the newest undamaged checkpoint
  std::string out;    // the new folder; must not exist yet. Empty: none stays, see `to`
  // An address of a folder (base/remote/address.h) that gets the files. Empty: none.
  std::string to;
  // With `to` in S3 or Google's storage: the folder may have objects. Those of an older export go.
  bool overwrite = false;
  // "fp32", "bf16", "fp16", or "auto": each tensor has the type that it had in the weights with
  // which the run began; fp32 if it began with none, and for adapters.
  std::string type = "auto";
  // Which folder (run/exporting/export_run.h): "huggingface", "longhaul", or "auto": the one that
  // such a run can have.
  std::string format = "huggingface";
  // For a run with LoRA. True: exports the whole model with the adapters merged in. False: exports
  // only the adapters.
  bool merged = false;
  // For adapters: the name of the adapted model, as in adapter_config.json. "": the name that the
  // model's config.json has, or the model's folder.
  std::string base;
};

// Fetches the checkpoint from the coordinator and writes the folder. Returns the exit code kDone,
// or an error for the user. After an error there is no new folder, unless it was written and could
// not be uploaded.
StatusOr<int> ExportRun(Invocation& invocation, const ExportOptions& options);

}  // namespace longhaul::cli
