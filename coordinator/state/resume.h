// What a run file may change when its run is resumed. Pure.
#ifndef LONGHAUL_COORDINATOR_STATE_RESUME_H_
#define LONGHAUL_COORDINATOR_STATE_RESUME_H_

#include <vector>

#include "base/status.h"
#include "coordinator/state/state.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// kFailedPrecondition with a sentence that names every key which a resumed run must keep and which
// differs: what the parameters, the data, the sample order or the bits of a step depend on.
Status CheckResumable(const RunRecord& record, const RunSpec& spec,
                      const std::vector<v1::DataFile>& files);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STATE_RESUME_H_
