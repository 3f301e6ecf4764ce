// Converts the traces of a run's stages to a timeline of one step, for the dashboard.
#pragma once

#include <string>

#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// Returns a timeline of each stage and each codec thread as JSON (docs/design/formats.md), for the
// newest step that is in the traces of all stages. Times are microseconds after the moment at which
// the earliest stage began the step, on the first stage's clock. "step" is null if no step is in
// all traces. Pure.
std::string TimelineJson(const v1::TraceReply& trace);

}  // namespace longhaul::coordinator
