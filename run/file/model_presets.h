// The shapes of published models, by the names that a run file's `model.preset` takes.
#ifndef LONGHAUL_RUN_FILE_MODEL_PRESETS_H_
#define LONGHAUL_RUN_FILE_MODEL_PRESETS_H_

#include <string>
#include <vector>

#include "run/file/run_spec.h"

namespace longhaul {

struct ModelPreset {
  std::string name;
  // As published (`vocabulary` included), but for `tied`: that needs a pipeline of one stage, so it
  // is the run file's to say.
  ModelSpec model;
};

// Smaller ones before larger ones of the same family.
const std::vector<ModelPreset>& ModelPresets();

}  // namespace longhaul

#endif  // LONGHAUL_RUN_FILE_MODEL_PRESETS_H_
