// Checks what a run file changes when its run is resumed. Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "coordinator/state/run_record.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// kFailedPrecondition with a sentence that names every changed key that a resumed run must keep:
// keys that affect the model (run/file/keys.h), and the contents of the data.
Status CheckResumable(const RunRecord& record, const RunSpec& spec,
                      const std::vector<v1::DataFile>& files);

// For a run that is done: kFailedPrecondition unless the file has more steps than the run, and
// there is a checkpoint to resume from.
Status CheckGoesFurther(const RunRecord& record, const RunSpec& spec);

}  // namespace longhaul::coordinator
