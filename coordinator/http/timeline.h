// Converts the traces of a run's stages to a timeline of one step, for the dashboard.
#pragma once

#include <string>

#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// Returns a timeline of each stage, with the work of its codec threads, as JSON
// (docs/design/formats.md). It shows the newest step that is in the traces of all stages; "step" is
// null if there is no such step. Times are in microseconds, on the first stage's clock. 0 is the
// moment at which the earliest stage began the step. Pure.
std::string TimelineJson(const v1::TraceReply& trace);

}  // namespace longhaul::coordinator
