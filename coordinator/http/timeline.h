// Shows one step of a run as a timeline of each stage and each codec thread.
#pragma once

#include <string>

#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// Returns JSON (docs/design/formats.md) of the newest step that every stage's trace has. Times are
// microseconds after the step's first beginning, on the first stage's clock. "step" is null if
// there is no such step. Pure.
std::string TimelineJson(const v1::TraceReply& trace);

}  // namespace longhaul::coordinator
