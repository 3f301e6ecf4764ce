// Checks the run file with which a run is resumed. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/state/run_record.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Checks that the run file `spec` keeps what a resumed run must keep: the keys that affect the
// model (run/file/keys.h), and the contents of the data files. kFailedPrecondition if not; the
// message names every key that differs, and the first data file that differs. `flag`: of `longhaul
// submit`, to leave out.
Status CheckResumable(const RunRecord& record, const RunSpec& spec,
                      const std::vector<v1::DataFile>& files, std::string_view flag = "--resume");

// Checks that a run in state `done` can train further. kFailedPrecondition if the run file `spec`
// has no more steps than the run, or if the run has no checkpoint to resume from.
Status CheckGoesFurther(const RunRecord& record, const RunSpec& spec);

}  // namespace longhaul::coordinator
