// Checks the run file with which a run is resumed. Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "coordinator/state/run_record.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Checks that the run file keeps what a resumed run must keep: keys that affect the model
// (run/file/keys.h), and the contents of the data. kFailedPrecondition: the message names every key
// that differs, and the first file.
Status CheckResumable(const RunRecord& record, const RunSpec& spec,
                      const std::vector<v1::DataFile>& files);

// Checks that a run that is done can train further. kFailedPrecondition unless the file has more
// steps than the run, and there is a checkpoint to resume from.
Status CheckGoesFurther(const RunRecord& record, const RunSpec& spec);

}  // namespace longhaul::coordinator
